"""The client's half of a publish, without any I/O: values to bytes, messages to batches, sessions for safe retries."""
