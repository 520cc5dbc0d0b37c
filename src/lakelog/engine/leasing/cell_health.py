"""Which cells are silent: a call to one takes long, and so does a small question beside it.

A call of a worker touches partitions of many cells. Whoever waits for a silent one would hold up the others, so nobody
does: what is asked of it is refused until it answers again. With one cell there are no others, and everybody waits.
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
"""A call that takes longer is doubted."""
PROBE_SECONDS = 1.0
"""So long a cell may take for what needs neither disk nor lock."""
_AGAIN_SECONDS = 0.2

_log = logging.getLogger(__name__)


class CellHealth:
    """The cells of one process."""

    def __init__(self, cells: Mapping[int, PartitionStore], on_unresponsive: Callable[[int], None]) -> None:
        """`on_unresponsive` is called once for each silence."""
        self._cells = cells
        self._cell_unresponsive = on_unresponsive
        self._silent: set[int] = set()
        self._questions: dict[int, asyncio.Task[None]] = {}
        self._asked: set[asyncio.Future[datetime]] = set()

    def __contains__(self, cell: int) -> bool:
        return cell in self._silent

    @contextmanager
    def awaiting(self, cell: int) -> Iterator[None]:
        """Around a call to the cell."""
        if len(self._cells) == 1:
            yield
            return
        doubt = asyncio.get_running_loop().call_later(SLOW_CALL_SECONDS, self._doubt, cell)
        try:
            yield
        finally:
            doubt.cancel()

    def heard(self, cell: int) -> None:
        if cell in self._silent:
            log_event(_log, logging.WARNING, "cell_responsive", f"Cell {cell} responds again.", cell=cell)
            self._silent.discard(cell)

    def close(self) -> None:
        for question in self._questions.values():
            question.cancel()

    def _doubt(self, cell: int) -> None:
        if cell not in self._questions:
            self._questions[cell] = asyncio.get_running_loop().create_task(self._ask(cell))

    async def _ask(self, cell: int) -> None:
        """Until it answers."""
        try:
            while True:
                if await self._answers(cell):
                    self.heard(cell)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            del self._questions[cell]

    async def _answers(self, cell: int) -> bool:
        question = asyncio.ensure_future(self._cells[cell].clock())
        self._asked.add(question)
        question.add_done_callback(self._forget)
        try:
            await asyncio.wait([question], timeout=PROBE_SECONDS)
            if question.done() and question.exception() is None:
                return True
        finally:
            # Its connection may be one that will never answer: the next question gets another.
            question.cancel()
        if cell not in self._silent:
            message = f"Cell {cell} does not respond. Its partitions are unavailable until it does."
            log_event(_log, logging.WARNING, "cell_unresponsive", message, cell=cell)
            self._silent.add(cell)
            self._cell_unresponsive(cell)
        return False

    def _forget(self, question: asyncio.Future[datetime]) -> None:
        self._asked.discard(question)
        if not question.cancelled():
            question.exception()
