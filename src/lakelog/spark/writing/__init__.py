"""DataFrames and streams into a topic, exactly once."""
