"""Health and readiness, and the refusal to serve on a database that would lose acknowledged messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec
import structlog

from lakelog.engine import Engine
from lakelog.errors import LakelogError, NotDurable
from lakelog.server.calls import JSON_TYPE, Answer, Call
from lakelog.server.drain import Drain
from lakelog.wire import shapes

_log = structlog.get_logger(__name__)

PING_SECONDS = 2.0
REMEMBER_SECONDS = 0.5
"""Readiness may be asked by anybody: it costs PostgreSQL one look in this time at most."""


async def check_durability(engine: Engine, allow_not_durable: bool) -> list[str]:
    """The settings of all cells that endanger acknowledged messages; `NotDurable` unless they are allowed."""
    weak = [
        f"cell {cell}: {setting}"
        for cell, store in sorted(engine.cells.items())
        for setting in (await store.durability()).weak
    ]
    if weak and not allow_not_durable:
        raise NotDurable(
            f"PostgreSQL could lose acknowledged messages in a crash ({'; '.join(weak)}). Turn these settings on, or "
            "start with --allow-not-durable where losing messages is of no matter.",
            settings="; ".join(weak),
        )
    return weak


class HealthSource:
    """What health and readiness answer. `weak` is what `check_durability` found and was told to allow."""

    def __init__(self, engine: Engine, drain: Drain, weak: Sequence[str] = ()) -> None:
        self._engine = engine
        self._drain = drain
        self._weak = tuple(weak)
        self._looked: tuple[float, list[str]] = (0.0, [])
        self._look: asyncio.Task[list[str]] | None = None

    async def healthz(self, call: Call) -> Answer:
        return self._answer(200, "draining" if self._drain.begun else "ok", [])

    async def readyz(self, call: Call) -> Answer:
        if self._drain.begun:
            return self._answer(503, "draining", ["The server is shutting down; use another one."])
        unreachable = await self._unreachable()
        if unreachable:
            return self._answer(503, "unavailable", unreachable)
        return self._answer(200, "ready", [])

    def _answer(self, status: int, text: str, reasons: list[str]) -> Answer:
        warnings = list(reasons)
        if self._weak:
            warnings.insert(0, f"NOT DURABLE: acknowledged messages can be lost in a crash ({'; '.join(self._weak)}).")
        shape = shapes.Health(status=text, durable=not self._weak, version=VERSION, warnings=warnings)
        retry = () if status == 200 else ((b"retry-after", b"1"),)
        return Answer(status, msgspec.json.encode(shape), JSON_TYPE, *retry)

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
                _ping("the catalog", self._engine.catalog.scope_find("default", "default")),
                *(_ping(f"cell {cell}", store.clock()) for cell, store in stores),
            )
            reasons = [reason for reason in found if reason]
            self._looked = (time.monotonic(), reasons)
            return reasons
        finally:
            self._look = None


async def _ping(name: str, call: Coroutine[object, object, object]) -> str | None:
    try:
        await asyncio.wait_for(call, PING_SECONDS)
    except TimeoutError:
        return f"No answer from {name} within {PING_SECONDS:g} s."
    except LakelogError as error:
        # Anybody may ask: addresses and names of databases are for the log.
        _log.warning("not ready", part=name, reason=error.detail)
        return f"No connection to {name}."
    return None


def _version() -> str:
    try:
        return version("lakelog")
    except PackageNotFoundError:
        return "unknown"


VERSION = _version()
