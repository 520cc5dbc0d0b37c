"""The record of a run: what was acknowledged, what was seen under each offset, and the verdict against the final log.

A message is identified by a number: that of its producer, and its own.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SHIFT = 40
NOTHING = -1
"""The content of an offset that was never seen."""


def number_of(producer: int, index: int) -> int:
    return producer << _SHIFT | index


def parse(value: str) -> int:
    """Return the number of the message with this value."""
    producer, _, index = value.partition("-")
    return number_of(int(producer), int(index))


def value_of(number: int) -> str:
    return f"{number >> _SHIFT}-{number & ((1 << _SHIFT) - 1)}"


class SeenLog:
    """The last content that one kind of client saw under each offset, and all changes of it."""

    def __init__(self, partitions: int) -> None:
        self.contents = [array("q") for _ in range(partitions)]
        self.changes: list[tuple[int, int, int, int]] = []
        """(partition, offset, content before, content after)."""

    def saw(self, partition: int, offset: int, number: int) -> None:
        contents = self.contents[partition]
        while len(contents) <= offset:
            contents.extend([NOTHING] * (offset + 1 - len(contents)))
        before = contents[offset]
        if before != number:
            contents[offset] = number
            if before != NOTHING:
                self.changes.append((partition, offset, before, number))

    def at(self, partition: int, offset: int) -> int:
        contents = self.contents[partition]
        return contents[offset] if offset < len(contents) else NOTHING


@dataclass(kw_only=True)
class FailoverRecord:
    """The record of all clients. Methods may be called by many threads."""

    partitions: int
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The partition and offset of each acknowledged message."""
    unknown: int = 0
    delivered: int = 0
    refused_reads: int = 0
    """Reads that were refused because the offset was beyond the end."""
    publishes: list[tuple[float, float]] = field(default_factory=list)
    """When each successful publish began and ended."""

    def __post_init__(self) -> None:
        self.by_workers = SeenLog(self.partitions)
        self.by_readers = SeenLog(self.partitions)
        self._lock = threading.Lock()

    def published(self, began: float, ended: float, placed: Sequence[tuple[int, int, int]]) -> None:
        """Record acknowledged messages: their number, partition and offset."""
        with self._lock:
            self.publishes.append((began, ended))
            for number, partition, offset in placed:
                self.acked[number] = (partition, offset)

    def not_published(self, count: int) -> None:
        with self._lock:
            self.unknown += count

    def saw(self, seen: Sequence[tuple[int, int, int]], *, is_worker: bool) -> None:
        """Record messages that a client received: partition, offset and number."""
        with self._lock:
            log = self.by_workers if is_worker else self.by_readers
            self.delivered += len(seen) if is_worker else 0
            for partition, offset, number in seen:
                log.saw(partition, offset, number)

    def was_refused(self) -> None:
        with self._lock:
            self.refused_reads += 1

    def serving_after(self, promoted: float) -> float | None:
        """Return the seconds until a publish that began after the promotion had succeeded; None if none did."""
        with self._lock:
            ended = [end for began, end in self.publishes if began >= promoted]
        return min(ended) - promoted if ended else None


@dataclass(frozen=True, kw_only=True)
class FailoverVerdict:
    """The comparison of a record with the final log."""

    lost: Mapping[int, int]
    """The number of acknowledged messages by partition that the final log does not have."""
    violations: Sequence[str]


def judge(
    record: FailoverRecord, final: Sequence[Sequence[int]], reported: Mapping[int, int], *, is_synchronous: bool
) -> FailoverVerdict:
    """Compare the record with the final log.

    Args:
        record: The record.
        final: The numbers of the messages in each partition, in order of offsets, from 0.
        reported: The number of lost messages by partition that the servers reported.
        is_synchronous: True if nothing may be lost.
    """
    violations: list[str] = []
    places = {number: (partition, offset) for partition, log in enumerate(final) for offset, number in enumerate(log)}
    if len(places) < sum(map(len, final)):
        violations.append("a message is in the log twice")
    lost: Counter[int] = Counter()
    for number, place in record.acked.items():
        if (found := places.get(number)) is None:
            lost[place[0]] += 1
        elif found != place:
            violations.append(f"message {value_of(number)} was acknowledged at {place} and is at {found}")
    if is_synchronous and lost:
        violations.append(f"acknowledged messages were lost: {dict(lost)}")
    if {**lost} != {partition: count for partition, count in reported.items() if count}:
        violations.append(f"lost messages by partition: {dict(lost)}, reported by servers: {dict(reported)}")
    for name, log in (("workers", record.by_workers), ("readers", record.by_readers)):
        violations += _judge_seen(name, log, final, places)
    undelivered = sum(
        record.by_workers.at(partition, offset) != number
        for partition, numbers in enumerate(final)
        for offset, number in enumerate(numbers)
    )
    if undelivered:
        violations.append(f"{undelivered} messages of the log were not delivered to a worker")
    return FailoverVerdict(lost=dict(lost), violations=violations[:20])


def _judge_seen(
    name: str, log: SeenLog, final: Sequence[Sequence[int]], places: Mapping[int, tuple[int, int]]
) -> list[str]:
    """Return violations of what clients saw: other content under an offset, except once after the content was lost."""
    found = []
    earlier: set[tuple[int, int, int]] = set()
    for partition, offset, before, after in log.changes:
        place = f"{partition}-{offset}"
        earlier.add((partition, offset, before))
        if before in places:
            found.append(f"{name} saw {value_of(after)} at {place} after {value_of(before)}, which is not lost")
        if (partition, offset, after) in earlier:
            found.append(f"{name} saw {value_of(after)} at {place} again after {value_of(before)}")
    for partition, contents in enumerate(log.contents):
        for offset, number in enumerate(contents):
            # A lost message may have been seen before it was lost.
            if places.get(number, (partition, offset)) != (partition, offset):
                found.append(f"{name} saw {value_of(number)} at {partition}-{offset}, and it is elsewhere")
    return found
