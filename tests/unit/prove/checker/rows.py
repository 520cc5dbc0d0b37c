"""Small histories for the tests of checks, as rows: `publish`, `fetch` and `final` in a readable form.

Texts are converted to numbers here. `judged` divides a history as the checker does, in the simplest way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prove.checker.invariant import CheckScope, Invariant, RunInfo, Violation
from prove.history.tables import TABLES, CallOutcome, ReaderKind, TableColumns, Tables, columns, text_id

OK, FAIL, INFO = CallOutcome.OK, CallOutcome.FAIL, CallOutcome.INFO
NAMES: dict[int, str] = {0: "none"}
"""The texts of all rows that were made."""

Row = Mapping[str, object]


@dataclass(frozen=True)
class Rows:
    """Rows of some tables; `+` joins them."""

    by_table: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    def __add__(self, other: Rows) -> Rows:
        names = [*self.by_table, *(name for name in other.by_table if name not in self.by_table)]
        return Rows({name: self.by_table.get(name, ()) + other.by_table.get(name, ()) for name in names})

    def tables(self) -> Tables:
        return Tables(by_name={name: columns(name, rows) for name, rows in self.by_table.items()})


def row(table: str, **values: object) -> Rows:
    """Return one row; texts become numbers."""
    return Rows(
        {table: ({name: number(value) if isinstance(value, str) else value for name, value in values.items()},)}
    )


def number(text: str | None) -> int:
    found = text_id(text)
    if text is not None:
        NAMES[found] = text
    return found


def run(**more: Any) -> RunInfo:
    """Return a run that knows all names."""
    return RunInfo(names=NAMES, **more)


def publish(counter: int, value: str, offset: int | None = None, **more: Any) -> Rows:
    """Return a publish of `a` from 10 x counter to 10 x counter + 5: ok if it has an offset, else unknown."""
    told = {"outcome": INFO} if offset is None else {"outcome": OK, "partition": 0, "offset": offset}
    when = {"invoked_ns": counter * 10, "completed_ns": counter * 10 + 5}
    defaults = {"process": "a", "topic": "t", "batch": counter, **when, **told}
    return row("attempt", **{**defaults, "counter": counter, "hash": value, **more})


def fetch(counter: int, start: int, messages: str, high_watermark: int, **more: Any) -> Rows:
    """Return a fetch by `r` from partition 0; messages as "5:x 6:y:key"."""
    shared = {"topic": "t", "partition": 0, "reader": ReaderKind.FETCH, "process": "r", "counter": counter}
    shared |= {"completed_ns": counter * 10 + 5} | {name: more[name] for name in more if name in TABLES["seen"]}
    found = [item.split(":") for item in messages.split()]
    first = int(found[0][0]) if found else -1
    read = {"invoked_ns": counter * 10, "offset": start, "first": first, "count": len(found), "log_start": 0}
    read |= {name: more[name] for name in more if name in TABLES["read"]}
    told = {name: value for name, value in shared.items() if name in TABLES["read"]}
    rows = row("read", **{**told, "high_watermark": high_watermark, **read})
    for offset, value, *key in found:
        rows += row("seen", **{**shared, "offset": int(offset), "hash": value, "key": key[0] if key else 0})
    return rows


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """A message of the final read that has more than a value."""

    value: str
    key: str | None = None
    identity: str | None = None


def keyed(value: str, key: str | None = None, identity: str | None = None) -> Keyed:
    return Keyed(value=value, key=key, identity=identity)


def final(
    *values: str | Keyed, log_start: int = 0, end: int | None = None, partition: int = 0, topic: str = "t"
) -> Rows:
    """Return the final read of one partition with these values at consecutive offsets."""
    end = log_start + len(values) if end is None else end
    return final_at(dict(enumerate(values, log_start)).items(), log_start, end, partition=partition, topic=topic)


def final_at(
    messages: Iterable[tuple[int, str | Keyed]], log_start: int, end: int, *, partition: int = 0, topic: str = "t"
) -> Rows:
    """Return the final read of one partition with these offsets, in the order in which they came."""
    found = [(offset, value if isinstance(value, Keyed) else keyed(value)) for offset, value in messages]
    where = {"topic": topic, "partition": partition, "reader": ReaderKind.FINAL, "process": "f", "counter": partition}
    told = {"offset": log_start, "log_start": log_start, "high_watermark": end, "count": len(found)}
    rows = row("read", **where, **told, first=found[0][0] if found else -1)
    for offset, one in found:
        rows += row("seen", **where, offset=offset, hash=one.value, key=number(one.key), identity=number(one.identity))
    return rows


def tables(*rows: Rows) -> Tables:
    """Return all tables, with what the loader adds: places of unknown attempts, and shared identities and values."""
    together = sum(rows, Rows()).tables()
    attempts = together["attempt"]
    if not len(attempts):
        return together
    return Tables(by_name={**together.by_name, "attempt": _placed(attempts, together["seen"])})


def judged(invariants: Iterable[Invariant], found: Tables, told: RunInfo | None = None) -> list[Violation]:
    """Return the violations that the invariants find in each part of a history."""
    known = told or run()
    return [each for one in invariants for part in _cut(one.scope, found) for each in one.check(part, known)]


def _placed(attempts: TableColumns, seen: TableColumns) -> TableColumns:
    places: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for each in np.flatnonzero(seen.reader == ReaderKind.FINAL):
        places[int(seen.topic[each]), int(seen.hash[each])].append((int(seen.partition[each]), int(seen.offset[each])))
    values = [(int(topic), int(value)) for topic, value in zip(attempts.topic, attempts.hash, strict=True)]
    names = [(int(topic), int(name)) for topic, name in zip(attempts.topic, attempts.identity, strict=True)]
    same_value, same_name = Counter(values), Counter(names)
    for at, (value, name) in enumerate(zip(values, names, strict=True)):
        attempts.shared[at] = same_value[value] > 1 or (name[1] != 0 and same_name[name] > 1)
        if attempts.outcome[at] == INFO and len(places[value]) == 1:
            attempts.partition[at], attempts.offset[at] = places[value][0]
    return attempts


def _cut(scope: CheckScope, found: Tables) -> Iterator[Tables]:
    by: tuple[str, ...]
    if scope in (CheckScope.LOG, CheckScope.COLD):
        by = ("topic", "partition")
    elif scope is CheckScope.PRODUCER:
        by = ("process",)
    elif scope is CheckScope.GROUP:
        by = ("group",)
    else:
        yield found
        return
    names = ("attempt",) if scope is CheckScope.PRODUCER else tuple(name for name in found.by_name if _has(name, by))
    keys = {key for name in names for key in zip(*(found[name].arrays[each].tolist() for each in by), strict=True)}
    for key in sorted(keys):
        cut = {name: _where(found[name], by, key) for name in names}
        # The final read has no group, and belongs to all groups.
        if scope is CheckScope.GROUP:
            cut["seen"] = found["seen"]
        yield Tables(by_name={**found.by_name, **cut})


def _has(name: str, by: tuple[str, ...]) -> bool:
    return all(each in TABLES[name] for each in by)


def _where(table: TableColumns, by: tuple[str, ...], key: tuple[int, ...]) -> TableColumns:
    chosen = np.ones(len(table), np.bool_)
    for name, wanted in zip(by, key, strict=True):
        chosen &= table.arrays[name] == wanted
    return table.where(chosen)
