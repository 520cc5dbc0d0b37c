"""The rule for retries."""
