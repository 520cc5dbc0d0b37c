"""Groups: their settings, members, progress, positions and dead letters."""
