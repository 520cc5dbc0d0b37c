"""Frozen values and rules, one class per concept. No I/O; imports only the standard library and msgspec."""
