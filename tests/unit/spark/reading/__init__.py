"""What reading decides and converts by itself."""
