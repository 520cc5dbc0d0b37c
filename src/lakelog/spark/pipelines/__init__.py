"""Pipelines that move or remove history: tiering and sweeping, their run records, and the programs that start them."""
