"""Retries: which errors are temporary, how long to wait, and what is logged during an outage."""
