"""Jobs that move or remove whole stretches of history: tiering and sweeping, their runs, and how they are started."""
