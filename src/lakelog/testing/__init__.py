"""Tests of programs that use Lakelog: an installation in memory with a manual clock.

The pytest plugin provides it as the fixture `lakelog_memory`. Importing this package loads nothing else, because pytest
loads the plugin in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog.testing.clock import ManualClock
    from lakelog.testing.draining import DrainResult
    from lakelog.testing.installation import MemoryInstallation

__all__ = ["DrainResult", "ManualClock", "MemoryInstallation"]

_HOMES = {
    "DrainResult": "lakelog.testing.draining",
    "ManualClock": "lakelog.testing.clock",
    "MemoryInstallation": "lakelog.testing.installation",
}

# Hidden from type checkers: if they see this function, they accept any attribute name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'lakelog.testing' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
