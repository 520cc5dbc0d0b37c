"""Tests of topics and groups as files."""
