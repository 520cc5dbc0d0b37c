"""Tests of the tools for language models."""
