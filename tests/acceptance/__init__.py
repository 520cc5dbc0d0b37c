"""Tests by behaviour, as users see it, through the public API only."""
