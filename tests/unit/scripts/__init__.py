"""Tests of the checks in scripts/checks."""
