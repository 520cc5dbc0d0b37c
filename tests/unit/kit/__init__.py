"""Tests of the test kit: what judges the others must be judged first."""
