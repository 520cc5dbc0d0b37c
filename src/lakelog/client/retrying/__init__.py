"""The one rule for retries: which errors pass, how long to wait, and what the log says during an outage."""
