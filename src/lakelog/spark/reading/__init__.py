"""A topic as a table: what to read, cut into splits, and read by tasks or by Spark's own Parquet reader."""
