"""What tiering decides by itself."""
