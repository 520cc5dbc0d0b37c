"""The simulation: the real engine and coordinator over in-memory stores, in virtual time, with all randomness from one
seed."""
