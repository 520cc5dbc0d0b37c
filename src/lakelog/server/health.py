"""Health and readiness, and the refusal to serve from a database that could lose acknowledged messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec

from lakelog.engine import Engine
from lakelog.errors import LakelogError, NotDurable
from lakelog.reporting import log_event, show_seconds
from lakelog.server.calls import JSON_TYPE, Call, Response
from lakelog.server.drain import Drain
from lakelog.storage.store import PartitionStore
from lakelog.wire import shapes

_log = logging.getLogger(__name__)

PING_SECONDS = 2.0
REMEMBER_SECONDS = 0.5
"""How long a readiness check is cached: anyone may call it, so it must not load PostgreSQL."""


async def check_durability(engine: Engine, allow_not_durable: bool) -> list[str]:
    """Return the settings that endanger acknowledged messages in any cell; raise `NotDurable` unless allowed."""
    weak = [
        f"cell {cell}: {setting}"
        for cell, store in sorted(engine.cells.items())
        for setting in (await store.durability()).weak
    ]
    if weak and not allow_not_durable:
        raise NotDurable(
            f"PostgreSQL could lose acknowledged messages in a crash ({'; '.join(weak)}). Turn these settings on. If "
            "losing messages is acceptable, start with --allow-not-durable.",
            settings="; ".join(weak),
        )
    return weak


class HealthSource:
    """Handles health and readiness. `weak` is the result of `check_durability`."""

    def __init__(self, engine: Engine, drain: Drain, weak: Sequence[str] = ()) -> None:
        self._engine = engine
        self._drain = drain
        self._weak = tuple(weak)
        self._alone: list[int] = []
        """The cells that had no synchronous standby at the last check."""
        self._unready = _Unready()
        self._looked: tuple[float, list[str]] = (0.0, [])
        self._look: asyncio.Task[list[str]] | None = None

    async def healthz(self, call: Call) -> Response:
        return self._answer(200, "draining" if self._drain.begun else "ok", [])

    async def readyz(self, call: Call) -> Response:
        if self._drain.begun:
            return self._answer(503, "draining", ["The server is shutting down; use another one."])
        unreachable = await self._unreachable()
        if unreachable:
            return self._answer(503, "unavailable", unreachable)
        return self._answer(200, "ready", [])

    def _answer(self, status: int, text: str, reasons: list[str]) -> Response:
        warnings = list(reasons)
        if self._weak:
            warnings.insert(0, f"NOT DURABLE: acknowledged messages can be lost in a crash ({'; '.join(self._weak)}).")
        if self._alone:
            cells = ", ".join(map(str, self._alone))
            warnings.append(
                f"Not durable on failover: without a synchronous standby (cells: {cells}), a promoted standby may lack "
                "acknowledged messages."
            )
        shape = shapes.Health(status=text, durable=not self._weak, version=VERSION, warnings=warnings)
        retry = () if status == 200 else ((b"retry-after", b"1"),)
        return Response(status, msgspec.json.encode(shape), JSON_TYPE, *retry)

    async def _unreachable(self) -> list[str]:
        looked_at, reasons = self._looked
        if time.monotonic() - looked_at < REMEMBER_SECONDS:
            return reasons
        if self._look is None:
            self._look = asyncio.create_task(self._look_at_all())
        return await asyncio.shield(self._look)

    async def _look_at_all(self) -> list[str]:
        try:
            stores = self._engine.cells.items()
            found = await asyncio.gather(
                _ping("the catalog", self._engine.catalog.check()),
                *(_ping(f"cell {cell}", self._check(cell, store)) for cell, store in stores),
            )
            failed = [each for each in found if each]
            self._unready.found({cause: None for _, cause in failed})
            # Anyone may call it, so addresses and names of databases go only to the log.
            reasons = [reason for reason, _ in failed]
            self._looked = (time.monotonic(), reasons)
            return reasons
        finally:
            self._look = None

    async def _check(self, cell: int, store: PartitionStore) -> None:
        await store.check()
        waits = (await store.durability()).synchronous_standby
        self._alone = sorted({*self._alone} - {cell} if waits else {*self._alone, cell})


class _Unready:
    """Logs when readiness changes, and why."""

    def __init__(self) -> None:
        self._causes: dict[str, None] = {}
        self._since = 0.0

    def found(self, causes: dict[str, None]) -> None:
        before, self._causes = self._causes, causes
        if causes and not before:
            self._since = time.monotonic()
            message = f"Not ready: /readyz returns 503. {' '.join(causes)}"
            log_event(_log, logging.WARNING, "server_unready", message, reasons=list(causes))
        elif before and not causes:
            seconds = time.monotonic() - self._since
            message = f"Ready again after {show_seconds(seconds)}."
            log_event(_log, logging.WARNING, "server_ready", message, seconds=round(seconds, 1))


async def _ping(name: str, call: Coroutine[object, object, object]) -> tuple[str, str] | None:
    """Return why a part does not respond, for callers and for the log; None if it responds."""
    ping = asyncio.ensure_future(call)
    # Not `wait_for`, which would wait up to 10 s more until an unresponsive connection is closed.
    await asyncio.wait([ping], timeout=PING_SECONDS)
    if not ping.done():
        ping.cancel()
        ping.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        reason = f"No response from {name} within {PING_SECONDS:g} s."
        return reason, reason
    try:
        ping.result()
    except LakelogError as error:
        return f"No connection to {name}.", error.detail
    return None


def _version() -> str:
    try:
        return version("lakelog")
    except PackageNotFoundError:
        return "unknown"


VERSION = _version()
