"""Tests of histories: how they are written, and that damage is never passed over."""
