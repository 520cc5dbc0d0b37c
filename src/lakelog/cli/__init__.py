"""The command line."""

from lakelog.cli.app import main

__all__ = ["main"]
