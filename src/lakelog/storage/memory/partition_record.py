"""The head, producers and keys of a partition in memory, and the checks of an append against them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lakelog.storage.store import PRODUCER_MEMORY, Append, Head, PartVerdict, SequencedRun, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """The (sequence, offset) of a producer's last batches in a partition."""

    recent: tuple[tuple[int, int], ...]
    used_at: datetime


@dataclass(slots=True, kw_only=True)
class PartitionRecord:
    """The newest head of a partition, and its producers and keys."""

    head: Head
    oldest_version: int = 1
    producers: dict[bytes, ProducerRecord] = field(default_factory=dict)
    keys: dict[bytes, tuple[int, datetime]] = field(default_factory=dict)
    """The offset of each idempotency key, and when the key expires."""

    def producer_at(self, name: bytes, now: datetime) -> ProducerRecord | None:
        """Return the producer, unless it was inactive for too long."""
        found = self.producers.get(name)
        return found if found is not None and found.used_at > now - PRODUCER_MEMORY else None

    def write_head(self, **changes: Any) -> None:
        self.head = replace(self.head, version=self.head.version + 1, **changes)


def judge_sequenced(partition: PartitionRecord, append: Append, now: datetime) -> Iterator[PartVerdict]:
    """Yield the verdicts on refused runs. Each run is checked as if the accepted runs before it were written."""
    known = {run.producer: partition.producer_at(run.producer, now) for run in append.sequenced}
    seen = {name: dict[int, int | None](producer.recent) for name, producer in known.items() if producer is not None}
    for index, run in enumerate(append.sequenced):
        verdict = _judge_run(run, seen.get(run.producer))
        if verdict is None:
            seen.setdefault(run.producer, {})[run.sequence] = None
        else:
            # A duplicate within the same append has no offset yet.
            offset = seen[run.producer][run.sequence] if verdict is Verdict.DUPLICATE else None
            yield PartVerdict(keyed=False, index=index, verdict=verdict, offset=offset)


def _judge_run(run: SequencedRun, recent: dict[int, int | None] | None) -> Verdict | None:
    if recent is None:
        return None if run.sequence == 0 else Verdict.UNKNOWN_PRODUCER
    if run.sequence in recent:
        return Verdict.DUPLICATE
    return None if run.sequence == max(recent) + 1 else Verdict.GAP


def judge_keyed(partition: PartitionRecord, append: Append, now: datetime) -> Iterator[PartVerdict]:
    """Yield the verdicts on duplicate keyed messages. A duplicate within the same append has no offset yet."""
    new: set[bytes] = set()
    for index, message in enumerate(append.keyed):
        offset, expires_at = partition.keys.get(message.key_hash, (0, now))
        if expires_at > now:
            yield PartVerdict(keyed=True, index=index, verdict=Verdict.DUPLICATE, offset=offset)
        elif message.key_hash in new:
            yield PartVerdict(keyed=True, index=index, verdict=Verdict.DUPLICATE)
        new.add(message.key_hash)
