"""Topics: settings, and what the catalog knows about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakelog.errors import InvalidRequest
from lakelog.model.limits import MAX_METADATA_BYTES, MAX_PARTITIONS, MAX_TAGS
from lakelog.model.message import partition_id

IDEMPOTENCY_SLOTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much of a partition is kept; without any limit, everything."""

    max_age: timedelta | None = None
    max_count: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        seconds = None if self.max_age is None else self.max_age.total_seconds()
        if any(limit is not None and limit <= 0 for limit in (seconds, self.max_count, self.max_bytes)):
            raise InvalidRequest("Retention limits are above zero; leave one out to keep everything.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What a topic's owner chooses, and may change later."""

    retention: Retention = field(default_factory=Retention)
    key_field: str | None = None
    idempotency_memory: timedelta = timedelta(hours=24)
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.tags) > MAX_TAGS or any(not 0 < len(tag) <= 120 for tag in self.tags):
            raise InvalidRequest(f"A topic has at most {MAX_TAGS} tags of 1 to 120 characters.")
        if sum(len(name) + len(text) for name, text in self.metadata.items()) > MAX_METADATA_BYTES:
            raise InvalidRequest(f"A topic's metadata is at most {MAX_METADATA_BYTES} bytes.")
        if self.idempotency_memory < timedelta(minutes=1):
            raise InvalidRequest("Idempotency keys are remembered for at least a minute.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose things are meant: one environment of one project. Comes from the token, never from the path alone."""

    project: str
    environment: str
    environment_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic in the catalog. `cells[n]` is the cell that holds partition n; that is the directory."""

    incarnation: int
    scope: Scope
    name: str
    epoch: int
    cells: tuple[int, ...]
    slot_cells: tuple[int, ...]
    settings: TopicSettings
    created_at: datetime

    @property
    def partitions(self) -> int:
        return len(self.cells)

    def pid(self, partition: int) -> int:
        return partition_id(self.incarnation, partition)

    def pids_by_cell(self) -> dict[int, list[int]]:
        """Which of its partitions each cell holds."""
        found: dict[int, list[int]] = {}
        for partition, cell in enumerate(self.cells):
            found.setdefault(cell, []).append(self.pid(partition))
        return found

    def slot_cell(self, key_hash: bytes) -> int:
        """The home cell of an idempotency key. It never moves, also when partitions are added."""
        slot = int.from_bytes(key_hash[:2], "big") % IDEMPOTENCY_SLOTS
        return self.slot_cells[slot % len(self.slot_cells)]


def check_partitions(count: int) -> int:
    """The count itself, if a topic may have that many partitions."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidRequest(f"A topic has 1 to {MAX_PARTITIONS} partitions, not {count}.")
    return count
