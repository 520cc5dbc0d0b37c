"""Test infrastructure: real PostgreSQL clusters, real processes, a faulty network, histories and their checkers."""
