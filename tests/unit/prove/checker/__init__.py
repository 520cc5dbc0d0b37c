"""One file per invariant: histories that violate it, and some that nearly do."""
