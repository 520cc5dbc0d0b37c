"""Leasing: hand out messages to the consumers of lease groups, and commit what they answer."""
