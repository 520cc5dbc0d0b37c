"""Reads everything that an installation stores, and names what is damaged, missing or unused. It changes no message."""
