"""The HTTP shapes that server and client share. No I/O."""
