"""A rolling upgrade under load: servers of an older commit are replaced by this checkout, one at a time, and back."""
