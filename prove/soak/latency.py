"""Latencies of publishes and deliveries, computed from the histories at the end.

Offsets of a partition are dense, so an array by offset has the send time of each message. Waits during a stall of the
machine, or just after it while clients catch up, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from prove.checker.row_matching import Array
from prove.checker.timing import SECOND
from prove.history.file_reader import FileReader
from prove.history.tables import CallOutcome, TableColumns

WINDOW_SECONDS = 10.0
RECOVERY_NS = 10 * SECOND
Stretches = Sequence[tuple[int, int]]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies in milliseconds of the calls that ended in these 10 s; -1 for none."""

    at: float
    publish_p50: float
    publish_p99: float
    delivery_p99: float


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The end of each wait in seconds of the soak, and its duration in milliseconds."""

    at: Array
    took: Array

    def quantile(self, share: float, begin: float, end: float) -> float:
        chosen = self.took[(self.at >= begin) & (self.at < end)]
        return float(np.quantile(chosen, share)) if len(chosen) else -1.0


@dataclass(frozen=True, kw_only=True)
class Latency:
    publish: Waits
    delivery: Waits
    """The latencies from the publish call of a message to its first delivery, in each lease group."""

    def windows(self, seconds: float) -> list[Window]:
        return [
            Window(
                at=begin + WINDOW_SECONDS,
                publish_p50=self.publish.quantile(0.5, begin, begin + WINDOW_SECONDS),
                publish_p99=self.publish.quantile(0.99, begin, begin + WINDOW_SECONDS),
                delivery_p99=self.delivery.quantile(0.99, begin, begin + WINDOW_SECONDS),
            )
            for begin in np.arange(0.0, seconds - WINDOW_SECONDS / 2, WINDOW_SECONDS).tolist()
        ]


def measure(
    folder: Path, roles: tuple[tuple[str, ...], tuple[str, ...]], began_ns: int, taken_away: Stretches = ()
) -> Latency:
    """Compute the latencies from the histories of these producers and owners, by role."""
    producers, owners = roles
    attempts = list(_ok(folder, producers, "attempt"))
    sent = _sent(attempts)
    publish = [(each.completed_ns, each.completed_ns - each.invoked_ns) for each in attempts]
    delivery = [_delivered(each, sent) for each in _ok(folder, owners, "delivery")]
    return Latency(publish=_waits(publish, began_ns, taken_away), delivery=_waits(delivery, began_ns, taken_away))


def _ok(folder: Path, roles: Iterable[str], table: str) -> Iterator[TableColumns]:
    for path in sorted(path for role in roles for path in (folder / "history").glob(f"{role}-*.jsonl")):
        for rows in FileReader(path, crashed=True).chunks():
            if rows.name == table:
                yield _needed(rows.where(rows.outcome == CallOutcome.OK))


def _needed(rows: TableColumns) -> TableColumns:
    """Keep only the needed columns, because an hour has millions of rows."""
    kept = ("partition", "offset", "invoked_ns", "completed_ns", "number")
    return TableColumns(rows.name, {name: rows.arrays[name] for name in kept if name in rows.arrays})


def _sent(attempts: Iterable[TableColumns]) -> dict[int, Array]:
    """Return the send time by partition and offset; 0 if unknown."""
    rows = list(attempts)
    found: dict[int, Array] = {}
    for partition in {int(each) for part in rows for each in np.unique(part.partition)}:
        mine = [part.where(part.partition == partition) for part in rows]
        found[partition] = np.zeros(max(int(part.offset.max(initial=-1)) for part in mine) + 1, np.int64)
        for part in mine:
            found[partition][part.offset] = part.invoked_ns
    return found


def _delivered(rows: TableColumns, sent: dict[int, Array]) -> tuple[Array, Array]:
    at, took = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for partition, times in sent.items():
        mine = rows.where((rows.partition == partition) & (rows.number == 1) & (rows.offset < len(times)))
        since = times[mine.offset]
        at.append(mine.completed_ns[since > 0])
        took.append((mine.completed_ns - since)[since > 0])
    return np.concatenate(at), np.concatenate(took)


def _waits(parts: Iterable[tuple[Array, Array]], began_ns: int, taken_away: Stretches) -> Waits:
    found = list(parts)
    at = np.concatenate([np.zeros(0, np.int64), *(each for each, _ in found)])
    took = np.concatenate([np.zeros(0, np.int64), *(each for _, each in found)])
    kept = _untouched(at, took, taken_away)
    at, took = at[kept], took[kept]
    return Waits(at=((at - began_ns) / SECOND).astype(np.float32), took=(took / 1e6).astype(np.float32))


def _untouched(ended: Array, took: Array, taken_away: Stretches) -> Array:
    """Return which waits overlap none of the intervals."""
    kept = np.ones(len(ended), np.bool_)
    for begin, end in taken_away:
        kept &= (ended < begin) | (ended - took > end + RECOVERY_NS)
    return kept
