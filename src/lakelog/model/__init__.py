"""The vocabulary: frozen values and rules. No I/O, standard library only."""
