"""Tests of the helpers for users' tests."""
