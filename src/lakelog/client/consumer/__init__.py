"""Pull consumers: programs that ask for messages, instead of handlers that workers run."""
