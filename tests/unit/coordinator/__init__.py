"""The decisions of groups, by example, by property, and against a slow reference."""
