"""Topics: their settings, and their record in the catalog. `topic_info` has the requests and replies about topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_duration, check_text, check_texts, check_whole
from lakelog.model.columns import TopicColumns
from lakelog.model.limits import MAX_DURATION_MS, MAX_FIELD_LENGTH, MAX_METADATA_BYTES, MAX_PARTITIONS, MAX_TAGS
from lakelog.model.masks import check_masks
from lakelog.model.message import partition_id
from lakelog.model.schema import SchemaSetting

IDEMPOTENCY_SLOTS = 1024
IDEMPOTENCY_MEMORY = timedelta(hours=24)
"""How long a topic remembers idempotency keys by default."""
_LONGEST = timedelta(milliseconds=MAX_DURATION_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The retention of a topic. Without limits, all messages are kept.

    Args:
        max_age: Messages older than this are removed; at least a millisecond.
        max_count: Messages to keep in each partition, 1 or more.
        max_bytes: Stored bytes to keep in each partition, 1 or more.
    """

    max_age: timedelta | None = None
    max_count: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_age is not None:
            check_duration("max_age", self.max_age, timedelta(milliseconds=1), _LONGEST)
        if self.max_count is not None:
            check_whole("max_count", self.max_count, 1)
        if self.max_bytes is not None:
            check_whole("max_bytes", self.max_bytes, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic, which can be changed later."""

    retention: Retention = field(default_factory=Retention)
    key_field: str | None = None
    idempotency_memory: timedelta = IDEMPOTENCY_MEMORY
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    paused: bool = False
    """True if the topic is paused for all groups, including those that start to read it later."""
    schema: SchemaSetting | None = None
    """The version of the schema that values must match; None if the topic has no schema."""
    columns: TopicColumns | None = None
    """The typed columns of the values; None if the topic has none."""
    masks: tuple[str, ...] = ()
    """The fields of messages that people see masked."""

    def __post_init__(self) -> None:
        if self.key_field is not None:
            _check_storable("key_field", check_text("key_field", self.key_field))
        tags = [len(tag) for tag in check_tags(self.tags)]
        if len(tags) > MAX_TAGS or any(not 0 < length <= 120 for length in tags):
            raise InvalidRequest(f"A topic must have at most {MAX_TAGS} tags of 1 to 120 characters.")
        _check_storable("tags", *self.tags)
        check_texts("metadata", self.metadata)
        _check_storable("metadata", *self.metadata, *self.metadata.values(), longest=MAX_METADATA_BYTES)
        if sum(len(name) + len(text) for name, text in self.metadata.items()) > MAX_METADATA_BYTES:
            raise InvalidRequest(f"A topic's metadata must be at most {MAX_METADATA_BYTES} bytes.")
        check_memory(self.idempotency_memory)
        _check_storable("masks", *check_masks(self.masks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One environment of one project. It comes from the token of a call, never from its path."""

    project: str
    environment: str
    environment_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic in the catalog. `cells[n]` is the cell that holds partition n: this is the directory."""

    incarnation: int
    scope: Scope
    name: str
    epoch: int
    cells: tuple[int, ...]
    slot_cells: tuple[int, ...]
    settings: TopicSettings
    created_at: datetime
    version: int = 0
    """A number that rises with every change, even one that does not raise the epoch."""

    @property
    def partitions(self) -> int:
        """Return the number of partitions."""
        return len(self.cells)

    def pid(self, partition: int) -> int:
        """Return the id of a partition."""
        return partition_id(self.incarnation, partition)

    def pids_by_cell(self) -> dict[int, list[int]]:
        """Return the ids of the partitions that each cell holds."""
        found: dict[int, list[int]] = {}
        for partition, cell in enumerate(self.cells):
            found.setdefault(cell, []).append(self.pid(partition))
        return found

    def slot_cell(self, key_hash: bytes) -> int:
        """Return the home cell of an idempotency key. It never changes, even if partitions are added."""
        slot = int.from_bytes(key_hash[:2], "big") % IDEMPOTENCY_SLOTS
        return self.slot_cells[slot % len(self.slot_cells)]


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags. A text is refused: it is an iterable of its characters."""
    if isinstance(tags, str | Mapping) or not isinstance(tags, Iterable):
        raise InvalidRequest(f"`tags` must be a list of texts, not {tags!r}.")
    return tuple(check_text("tags", tag) for tag in tags)


def check_memory(duration: timedelta) -> timedelta:
    """Return the duration if it is valid as the idempotency memory of a topic."""
    return check_duration("idempotency_memory", duration, timedelta(minutes=1), _LONGEST)


def check_partitions(count: int) -> int:
    """Return the count if it is a valid number of partitions."""
    return check_whole("partitions", count, 1, MAX_PARTITIONS)


def _check_storable(name: str, *texts: str, longest: int = MAX_FIELD_LENGTH) -> None:
    # PostgreSQL cannot store the character 0 in a text.
    if any("\0" in text or len(text) > longest for text in texts):
        raise InvalidRequest(f"`{name}` has the character 0, or more than {longest} characters.")
