"""Benchmarks: every figure that we quote can be made again from here. They test nothing and tune nothing."""
