"""Checks of this repository that no general tool has: words, line lengths, import cycles, code size, the reference."""
