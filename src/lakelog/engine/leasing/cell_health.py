"""Detects unresponsive cells: a call takes long, and a small probe gets no response either.

A worker's call touches partitions of many cells. Waiting for an unresponsive cell would delay the other cells, so
operations on it are refused until it responds again. With a single cell, calls wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from lakelog.reporting import log_event
from lakelog.storage.store import PartitionStore

SLOW_CALL_SECONDS = 2.0
"""A call that takes longer than this starts a probe."""
PROBE_SECONDS = 1.0
"""The time limit of a probe, which needs neither disk nor lock."""
_AGAIN_SECONDS = 0.2

_log = logging.getLogger(__name__)


class CellHealth:
    """The health of all cells, as one process observes it."""

    def __init__(self, cells: Mapping[int, PartitionStore], on_unresponsive: Callable[[int], None]) -> None:
        """`on_unresponsive` is called once each time a cell becomes unresponsive."""
        self._cells = cells
        self._cell_unresponsive = on_unresponsive
        self._unresponsive: set[int] = set()
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._asked: set[asyncio.Future[datetime]] = set()

    def __contains__(self, cell: int) -> bool:
        return cell in self._unresponsive

    @contextmanager
    def awaiting(self, cell: int) -> Iterator[None]:
        """Watch a call to the cell: enter before it, leave after it."""
        if len(self._cells) == 1:
            yield
            return
        timer = asyncio.get_running_loop().call_later(SLOW_CALL_SECONDS, self._start_probe, cell)
        try:
            yield
        finally:
            timer.cancel()

    def heard(self, cell: int) -> None:
        if cell in self._unresponsive:
            log_event(_log, logging.WARNING, "cell_responsive", f"Cell {cell} responds again.", cell=cell)
            self._unresponsive.discard(cell)

    def close(self) -> None:
        for probe in self._probes.values():
            probe.cancel()

    def _start_probe(self, cell: int) -> None:
        if cell not in self._probes:
            self._probes[cell] = asyncio.get_running_loop().create_task(self._probe(cell))

    async def _probe(self, cell: int) -> None:
        """Probe the cell until it responds."""
        try:
            while True:
                if await self._responds(cell):
                    self.heard(cell)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            del self._probes[cell]

    async def _responds(self, cell: int) -> bool:
        probe = asyncio.ensure_future(self._cells[cell].clock())
        self._asked.add(probe)
        probe.add_done_callback(self._forget)
        try:
            await asyncio.wait([probe], timeout=PROBE_SECONDS)
            if probe.done() and probe.exception() is None:
                return True
        finally:
            # Its connection may never respond: the next probe gets another one.
            probe.cancel()
        if cell not in self._unresponsive:
            message = f"Cell {cell} does not respond. Its partitions are unavailable until it does."
            log_event(_log, logging.WARNING, "cell_unresponsive", message, cell=cell)
            self._unresponsive.add(cell)
            self._cell_unresponsive(cell)
        return False

    def _forget(self, probe: asyncio.Future[datetime]) -> None:
        self._asked.discard(probe)
        if not probe.cancelled():
            probe.exception()
