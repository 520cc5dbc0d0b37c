"""Health and readiness, and the refusal to serve from a database that could lose acknowledged messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import msgspec

from lakelog.engine import Engine
from lakelog.errors import LakelogError, NotDurable, Unavailable
from lakelog.reporting import log_event, show_seconds
from lakelog.server.calls import JSON_TYPE, Call, Response
from lakelog.server.drain import Drain
from lakelog.storage.store import PartitionStore
from lakelog.wire import shapes

_log = logging.getLogger(__name__)

PING_SECONDS = 2.0
_CATALOG = "the catalog"
REMEMBER_SECONDS = 0.5
"""How long a readiness check is cached: anyone may call it, so it must not load PostgreSQL."""


async def check_durability(engine: Engine, allow_not_durable: bool) -> list[str]:
    """Return the settings that endanger acknowledged messages in any cell; raise `NotDurable` unless allowed."""
    weak: list[str] = []
    for cell, store in sorted(engine.cells.items()):
        try:
            async with asyncio.timeout(PING_SECONDS):
                weak += [f"cell {cell}: {setting}" for setting in (await store.durability()).weak]
        except (Unavailable, TimeoutError):
            # Readiness reports the cell, and checks its settings when it responds.
            continue
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
        self._unready = _Transition("server_unready", "Not ready: /readyz returns 503.", "server_ready", "Ready again")
        self._degraded = _Transition(
            "cell_unreachable",
            "A cell cannot be reached.",
            "cell_reachable",
            "All cells can be reached again",
        )
        self._looked: tuple[float, dict[str, str]] = (0.0, {})
        self._look: asyncio.Task[dict[str, str]] | None = None

    async def healthz(self, call: Call) -> Response:
        return self._answer(200, "draining" if self._drain.begun else "ok", [])

    async def readyz(self, call: Call) -> Response:
        if self._drain.begun:
            return self._answer(503, "draining", ["The server is shutting down; use another one."])
        unreachable = await self._unreachable()
        if self._is_unready(unreachable):
            return self._answer(503, "unavailable", list(unreachable.values()))
        return self._answer(200, "degraded" if unreachable else "ready", list(unreachable.values()))

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
        for cell, count in sorted(self._engine.losses.by_cell.items()):
            warnings.append(
                f"A failover of cell {cell} lost {count} messages that this server had acknowledged. The log names "
                "them (event messages_lost)."
            )
        shape = shapes.Health(status=text, durable=not self._weak, version=VERSION, warnings=warnings)
        retry = () if status == 200 else ((b"retry-after", b"1"),)
        return Response(status, msgspec.json.encode(shape), JSON_TYPE, *retry)

    @property
    def cells_unreachable(self) -> int:
        """The number of cells that did not respond when readiness was last checked."""
        return len(self._looked[1].keys() - {_CATALOG})

    async def _unreachable(self) -> dict[str, str]:
        """Return why parts cannot be reached, by part. Anyone may see it: addresses of databases go only to the log."""
        looked_at, reasons = self._looked
        if time.monotonic() - looked_at < REMEMBER_SECONDS:
            return reasons
        if self._look is None:
            self._look = asyncio.create_task(self._look_at_all())
        return await asyncio.shield(self._look)

    def _is_unready(self, unreachable: Collection[str]) -> bool:
        """Return whether no call can be served: that takes the catalog and one cell."""
        return _CATALOG in unreachable or len(unreachable) >= len(self._engine.cells)

    async def _look_at_all(self) -> dict[str, str]:
        try:
            parts: dict[str, Callable[[], Coroutine[object, object, object]]] = {_CATALOG: self._engine.catalog.check}
            parts |= {f"cell {cell}": partial(self._check, cell, store) for cell, store in self._engine.cells.items()}
            found = await asyncio.gather(*(_ping(name, check) for name, check in parts.items()))
            failed = {name: each for name, each in zip(parts, found, strict=True) if each}
            causes = {cause: None for _, cause in failed.values()}
            is_unready = self._is_unready(failed)
            self._unready.found(causes if is_unready else {})
            self._degraded.found({} if is_unready else causes)
            reasons = {name: reason for name, (reason, _) in failed.items()}
            self._looked = (time.monotonic(), reasons)
            return reasons
        finally:
            self._look = None

    async def _check(self, cell: int, store: PartitionStore) -> None:
        await store.check()
        durability = await store.durability()
        waits = durability.synchronous_standby
        if f"cell {cell}" in self._looked[1]:
            # Perhaps it could not be reached at the start either, and was not checked then.
            found = (f"cell {cell}: {setting}" for setting in durability.weak)
            self._weak += tuple(each for each in found if each not in self._weak)
        self._alone = sorted({*self._alone} - {cell} if waits else {*self._alone, cell})


class _Transition:
    """Logs when a condition begins and ends, and why."""

    def __init__(self, began: str, message: str, ended: str, end_message: str) -> None:
        """`began` and `ended` are the events; the messages are followed by the causes and the duration."""
        self._events = (began, ended)
        self._messages = (message, end_message)
        self._causes: dict[str, None] = {}
        self._since = 0.0

    def found(self, causes: dict[str, None]) -> None:
        before, self._causes = self._causes, causes
        if causes and not before:
            self._since = time.monotonic()
            message = f"{self._messages[0]} {' '.join(causes)}"
            log_event(_log, logging.WARNING, self._events[0], message, reasons=list(causes))
        elif before and not causes:
            seconds = time.monotonic() - self._since
            message = f"{self._messages[1]} after {show_seconds(seconds)}."
            log_event(_log, logging.WARNING, self._events[1], message, seconds=round(seconds, 1))


async def _ping(name: str, call: Callable[[], Coroutine[object, object, object]]) -> tuple[str, str] | None:
    """Return why a part does not respond, for callers and for the log; None if it responds."""
    ping = asyncio.ensure_future(call())
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
