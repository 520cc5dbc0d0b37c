"""Tests of the proof of pull consumers."""
