"""The simulation: the real engine and coordinator over stores in memory, in virtual time, all chance from one seed."""
