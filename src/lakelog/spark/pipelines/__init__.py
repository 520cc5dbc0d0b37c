"""Pipelines on history: tiering, sweeping and replay, their run records, and the programs that start them."""
