"""Outboxes: the relay that moves their messages to the log, and the messages that the log refused."""
