"""Unit tests: they mirror src, and the kit."""
