"""Reading and redriving dead letters with Spark."""
