"""What a redrive decides by itself."""
