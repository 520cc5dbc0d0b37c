"""The proof: histories of runs with faults, and the checks of what Lakelog promises. Run it with `scripts/prove`."""
