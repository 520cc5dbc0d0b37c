"""The pytest plugin: the fixture `lakelog_memory`. It loads Lakelog when a test uses the fixture, not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lakelog.testing.installation import MemoryInstallation


@pytest.fixture
def lakelog_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryInstallation]:
    """Provide an empty installation in memory with a manual clock. `lakelog.connect()` connects to it in this test."""
    from lakelog.testing.installation import MemoryInstallation

    with MemoryInstallation() as installation:
        monkeypatch.setenv("LAKELOG_URL", installation.url)
        yield installation
