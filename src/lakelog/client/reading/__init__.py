"""Converts fetched batches to messages and tables, and the arguments of a fetch to positions."""
