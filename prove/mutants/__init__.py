"""Bugs that others had, as patches of our own code: a proof that does not find them proves nothing."""
