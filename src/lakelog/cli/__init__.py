"""The command-line interface."""

from lakelog.cli.app import main

__all__ = ["main"]
