"""What users see, by behaviour, through the public API only."""
