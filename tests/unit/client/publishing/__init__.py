"""The client's half of a publish."""
