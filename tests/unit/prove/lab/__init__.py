"""The laboratory: its schedule, its effects, its report."""
