"""Runs the relays of outboxes. One process of an installation relays each outbox."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

from lakelog.engine import Engine
from lakelog.engine.outbox.relay import NoOutbox, RelayReplaced
from lakelog.errors import LakelogError, first_line
from lakelog.maintenance.election import Election
from lakelog.reporting import FailureLog, log_event
from lakelog.storage.background import is_background
from lakelog.storage.outbox import OutboxSource
from lakelog.storage.store import DEFAULT_CELL

BUSY_SECONDS = 0.025
"""The time between two reads while messages arrive."""
IDLE_SECONDS = 0.5
"""The time between two reads when no messages arrive."""
_ELECT_SECONDS = 2.0
_TIDY_SECONDS = 1.0
_ROTATE_SECONDS = 10.0
_TRIM_SECONDS = 300.0
_LONGEST_PAUSE = 5.0
_MISSING_SECONDS = 10.0
_RESIGN_SECONDS = 2.0

_log = logging.getLogger(__name__)


class OutboxRelays:
    """The relays of one process: one for each outbox."""

    def __init__(self, engine: Engine, sources: Sequence[OutboxSource], own: OutboxSource | None = None) -> None:
        """Create the relays.

        Args:
            engine: The engine of the log.
            sources: The outboxes. One that does not exist is reported.
            own: The database of the log, which may have an outbox too.
        """
        self._runners = [_Runner(engine, source, is_expected=True) for source in sources]
        known = {source.address for source in sources}
        if own is not None and own.address not in known:
            self._runners.append(_Runner(engine, own, is_expected=False))

    def start(self) -> None:
        for runner in self._runners:
            runner.start()

    async def stop(self) -> None:
        await asyncio.gather(*(runner.stop() for runner in self._runners))


class _Runner:
    """Relays one outbox while this process is elected to."""

    def __init__(self, engine: Engine, source: OutboxSource, *, is_expected: bool) -> None:
        self._engine = engine
        self._source = source
        self._is_expected = is_expected
        self._relay = engine.outbox_relay(source)
        self._store = engine.cells[DEFAULT_CELL]
        self._election = Election(f"outbox {source.address}", every_seconds=_ELECT_SECONDS)
        name = f"The outbox at {source.address}"
        self._failures = FailureLog(name, "outbox", _log, fields={"database": source.address})
        self._task: asyncio.Task[None] | None = None
        self._elected_at = self._tidied_at = self._rotated_at = self._trimmed_at = float("-inf")

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            # Without a resignation, its lease expires.
            with contextlib.suppress(LakelogError, TimeoutError):
                async with asyncio.timeout(_RESIGN_SECONDS):
                    await self._election.resign(self._store)
            await self._relay.close()

    async def _loop(self) -> None:
        is_background.set(True)
        pause = BUSY_SECONDS
        while True:
            began = time.monotonic()
            try:
                pause = await self._step(began, pause)
            except NoOutbox as error:
                await self._relay.close()
                if self._is_expected:
                    self._failures.failed(str(error))
                pause = _MISSING_SECONDS
            except RelayReplaced as error:
                log_event(_log, logging.INFO, "outbox_relay_replaced", str(error), database=self._source.address)
                pause = _MISSING_SECONDS
            except LakelogError as error:
                self._failures.failed(error.detail)
                pause = min(_LONGEST_PAUSE, 2 * max(pause, BUSY_SECONDS))
            except Exception as error:
                reason = f"{type(error).__name__}: {first_line(error)}"
                self._failures.failed(reason, level=logging.ERROR, error=error)
                pause = _LONGEST_PAUSE
            await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))

    async def _step(self, now: float, pause: float) -> float:
        """Do what is due, and return the pause until the next step."""
        if now - self._elected_at > _ELECT_SECONDS:
            if not await self._election.is_won(self._store):
                await self._relay.close()
                return _ELECT_SECONDS
            self._elected_at = now
        count = await self._poll()
        self._failures.recovered()
        if now - self._tidied_at > _TIDY_SECONDS:
            self._tidied_at = now
            await self._relay.tidy(rotate=now - self._rotated_at > _ROTATE_SECONDS)
            if now - self._rotated_at > _ROTATE_SECONDS:
                self._rotated_at = now
        if now - self._trimmed_at > _TRIM_SECONDS:
            self._trimmed_at = now
            if not await self._relay.trim():
                self._trimmed_at = float("-inf")
        return BUSY_SECONDS if count else min(IDLE_SECONDS, max(BUSY_SECONDS, pause * 1.5))

    async def _poll(self) -> int:
        """Move what is visible, and return how many messages.

        The election is renewed during that time. A backlog can take longer than the lease, and another process would
        then read the outbox from its beginning.
        """
        moving = asyncio.create_task(self._relay.poll())
        try:
            while not (await asyncio.wait([moving], timeout=_ELECT_SECONDS))[0]:
                if not await self._election.is_won(self._store):
                    raise RelayReplaced(f"Another process was elected to relay the outbox at {self._source.address}.")
                self._elected_at = time.monotonic()
            return moving.result()
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
