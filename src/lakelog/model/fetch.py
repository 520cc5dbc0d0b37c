"""A fetch: its limits, and the stored batches that it returns, for the engine, the wire and the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakelog.errors import InvalidRequest
from lakelog.model import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The largest number of messages, and how long to wait if there are none."""

    max_messages: int = 1000
    max_bytes: int = limits.MAX_FETCH_BYTES
    wait_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_messages <= limits.MAX_BATCH_MESSAGES:
            raise InvalidRequest(f"The limit must be from 1 to {limits.MAX_BATCH_MESSAGES} messages.")
        if not 0 <= self.wait_seconds <= limits.MAX_WAIT_MS / 1000:
            raise InvalidRequest(f"The wait of a fetch must be from 0 to {limits.MAX_WAIT_MS} ms.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A whole stored batch. It may begin before the requested offset."""

    base: int
    count: int
    appended_at: datetime
    epoch: int
    payload: bytes | memoryview

    @property
    def end(self) -> int:
        return self.base + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """Messages from `start` up to, not including, `until`, which is the next offset to read.

    The batches are whole: the first may begin before `start`, and the last may end after `until`.
    """

    incarnation: int
    partition: int
    start: int
    until: int
    log_start: int
    high_watermark: int
    batches: Sequence[StoredBatch]
