"""From fetched batches to messages and tables, and the positions at which a fetch starts."""
