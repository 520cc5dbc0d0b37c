"""An engine in this process, for clients without a server: over memory, or directly over PostgreSQL.

The rights are those of the database role, not of a token. `portal` decides in which thread the engine runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakelog.engine import Engine, EngineSettings
from lakelog.engine.clock import ExactClock
from lakelog.errors import ConfigurationError, NotDurable
from lakelog.maintenance import RETENTION_SECONDS, Maintenance
from lakelog.model.names import check_name
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore, utcnow
from lakelog.storage.memory.clock import milliseconds
from lakelog.storage.store import DEFAULT_CELL


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """The database of an embedded engine, and how it is used."""

    url: str = field(repr=False)
    cells: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_not_durable: bool = False
    object_store: str | None = None
    agents: bool = True
    """True to run maintenance in this engine. The keeper process of a worker leaves it to the worker."""
    retention_seconds: float = RETENTION_SECONDS
    """How often this engine enforces retention; 0 for never."""
    clock: Callable[[], datetime] | None = None
    """The clock of an engine in memory. None means the machine's."""

    @property
    def is_in_memory(self) -> bool:
        """Return whether the engine is in memory, not over PostgreSQL."""
        return self.url.startswith("memory:")

    @property
    def memory_name(self) -> str:
        """Return the name of an engine in memory; empty if it has none."""
        return self.url.partition("://")[2]


class EmbeddedEngine:
    """A started engine with its agents. Belongs to the event loop that opened it."""

    def __init__(self, engine: Engine, *, retention_seconds: float = RETENTION_SECONDS) -> None:
        self.engine = engine
        self._maintenance = Maintenance(engine, retention_seconds=retention_seconds)
        self._scopes: dict[tuple[str, str], Scope] = {}

    @classmethod
    async def open(cls, settings: EmbeddedSettings) -> EmbeddedEngine:
        if settings.is_in_memory:
            clock = settings.clock or utcnow
            engine = Engine(MemoryCatalog(clock), {DEFAULT_CELL: MemoryStore(clock)}, _engine_settings(settings))
        else:
            engine = await _open_postgres(settings)
        embedded = cls(engine, retention_seconds=settings.retention_seconds)
        await engine.start()
        if settings.agents:
            embedded._maintenance.start()
        return embedded

    async def scope(self, project: str, environment: str) -> Scope:
        place = (project, environment)
        if place not in self._scopes:
            check_name("project", project)
            check_name("environment", environment)
            self._scopes[place] = await self.engine.catalog.scope_create(project, environment)
        return self._scopes[place]

    async def close(self) -> None:
        await self._maintenance.stop()
        await self.engine.close()


def _engine_settings(settings: EmbeddedSettings) -> EngineSettings:
    clock = settings.clock
    if clock is None:
        return EngineSettings(object_store=settings.object_store)
    return EngineSettings(object_store=settings.object_store, clock=lambda: ExactClock(lambda: milliseconds(clock())))


async def _open_postgres(settings: EmbeddedSettings) -> Engine:
    try:
        from lakelog.storage.postgres import open_stores
    except ImportError as exc:
        raise ConfigurationError(
            "postgresql:// needs the PostgreSQL driver; install it with `pip install 'lakelog[postgres]'`, "
            "or connect to a server with http://."
        ) from exc
    engine = Engine(*await open_stores(settings.url, settings.cells), _engine_settings(settings))
    try:
        for store in engine.cells.values():
            weak = (await store.durability()).weak
            if weak and not settings.allow_not_durable:
                raise NotDurable(
                    f"PostgreSQL could lose acknowledged messages: {', '.join(weak)}. "
                    "Set these on, or connect with allow_not_durable=True for a test."
                )
    except BaseException:
        await engine.close()
        raise
    return engine
