"""One file per invariant: histories that break it, and some that nearly do."""
