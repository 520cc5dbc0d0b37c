"""Scenarios with faults: real servers and PostgreSQL, killed, stopped, cut off."""
