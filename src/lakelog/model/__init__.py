"""The vocabulary: frozen values and rules. No I/O; the standard library and msgspec only."""
