"""The trace of a message: every line of every history that is about it, in order of time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from prove.checker.invariant import RunInfo, Violation
from prove.history.tables import CallOutcome, MemberEvent, OwnerVerb, ReaderKind, TableColumns, Tables, text_id

MOST_LINES = 200
_TABLES = ("attempt", "delivery", "answer", "dead", "seen", "call", "member", "progress", "read")
_PLACED = ("attempt", "delivery", "answer", "dead", "seen")


def trace_of(violation: Violation, tables: Tables, run: RunInfo) -> list[str]:
    """Return the lines of the violation's message; if the violation is not about a message, those of its calls."""
    lines: dict[str, int] = {}
    if violation.place is not None:
        topic, partition, offset = violation.place
        for name in _PLACED:
            rows = tables[name]
            mine = (rows.topic == text_id(topic)) & (rows.partition == partition) & (rows.offset == offset)
            lines |= _lines(rows.where(mine), run)
    for call in violation.calls:
        process, _, counter = call.rpartition("-")
        if counter.isdigit():
            lines |= _of_call(tables, run, text_id(process), int(counter))
    ordered = sorted(lines, key=lambda line: lines[line])
    return ordered[:MOST_LINES]


def _of_call(tables: Tables, run: RunInfo, process: int, counter: int) -> dict[str, int]:
    lines: dict[str, int] = {}
    for name in _TABLES:
        rows = tables[name]
        if "counter" in rows.arrays:
            mine = np.flatnonzero((rows.process == process) & (rows.counter == counter))[:3]
            lines |= _lines(rows.where(mine), run)
    return lines


def _lines(rows: TableColumns, run: RunInfo) -> dict[str, int]:
    zero = run.load_ns[0]
    found = {}
    for row in range(min(len(rows), MOST_LINES)):
        fact = {name: int(array[row]) for name, array in rows.arrays.items()}
        at = fact.get("completed_ns") or fact.get("invoked_ns") or 0
        when = f"{(at - zero) / 1e9:9.3f} s" if at else "   at the end "
        who = run.name(fact["process"]) if "process" in fact else ""
        counter = f"-{fact['counter']}" if fact.get("counter", -1) >= 0 else ""
        found[f"{when}  {who}{counter}: {rows.name} {', '.join(_words(rows.name, fact, run))}"] = at
    return found


def _words(table: str, fact: dict[str, int], run: RunInfo) -> Iterator[str]:
    if "outcome" in fact:
        yield CallOutcome(fact["outcome"]).name.lower()
    if "verb" in fact:
        yield OwnerVerb(fact["verb"]).name.lower()
    if "event" in fact:
        yield MemberEvent(fact["event"]).name.lower()
    if "reader" in fact:
        yield f"by {ReaderKind(fact['reader']).name.lower()}"
    if fact.get("partition", -1) >= 0:
        yield f"{run.name(fact['topic'])}/{fact['partition']}" + (f"@{fact['offset']}" if "offset" in fact else "")
    for name in ("group", "owner", "member"):
        if fact.get(name):
            yield f"{name} {run.name(fact[name])}"
    for name in ("token", "number", "failures", "generation", "sequence", "committed", "frontier", "expires_ms"):
        if name in fact and fact[name] not in (-1, 0):
            yield f"{name} {fact[name]}"
    for name in ("suspect", "duplicate", "dead"):
        if fact.get(name):
            yield name
    if "hash" in fact:
        yield f"value {fact['hash'] & (2**64 - 1):016x}"
