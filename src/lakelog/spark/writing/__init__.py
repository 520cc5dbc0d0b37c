"""Writing DataFrames and streams to a topic, exactly once."""
