"""Leasing: delivers messages to the consumers of lease groups, and commits their answers."""
