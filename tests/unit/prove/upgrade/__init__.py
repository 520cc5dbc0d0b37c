"""Tests of the rolling upgrade."""
