"""What a stream decides by itself."""
