"""Parts of pull consumers."""
