"""Replays a range of a topic through a handler, beside live groups."""
