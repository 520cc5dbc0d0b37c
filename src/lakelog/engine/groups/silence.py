"""Cells that do not respond. A view of groups leaves their partitions out instead of waiting for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from lakelog.engine.groups.positions import gathered
from lakelog.errors import Unavailable
from lakelog.storage.store import PartitionStore

SILENT_SECONDS = 3.0
"""How long a view waits for a cell before it leaves its partitions out."""


async def silent_cells(cells: Mapping[int, PartitionStore], asked: Iterable[int]) -> frozenset[int]:
    """Return the asked cells that do not respond. A single cell is always read, and raises its error."""
    if len(cells) == 1:
        return frozenset()

    async def is_silent(cell: int) -> bool:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                await cells[cell].clock()
        except (Unavailable, TimeoutError):
            return True
        return False

    each = sorted(set(asked))
    found = await gathered(map(is_silent, each))
    return frozenset(cell for cell, silent in zip(each, found, strict=True) if silent)
