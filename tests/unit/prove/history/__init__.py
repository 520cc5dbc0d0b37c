"""Tests of histories: recording, and detection of damage."""
