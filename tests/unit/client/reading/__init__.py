"""From fetched batches to messages."""
