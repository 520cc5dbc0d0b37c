"""Tests of the seeded bugs."""
