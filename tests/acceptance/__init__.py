"""What users see, by behaviour, through the public surface alone."""
