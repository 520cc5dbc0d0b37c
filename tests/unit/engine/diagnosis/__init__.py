"""Tests of the checks of an installation."""
