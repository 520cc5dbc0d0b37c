"""The proof: histories of runs with faults, and checks of Lakelog's promises. Run it with `scripts/prove`."""
