"""Topics and groups as files: reads a file, compares it with an installation, and applies the difference."""
