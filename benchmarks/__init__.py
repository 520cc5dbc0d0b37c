"""Benchmarks that reproduce every figure we quote. They test nothing and tune nothing."""
