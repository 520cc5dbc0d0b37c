"""The meaning of lines: converts a call with its outcome to rows of the tables.

A row's value is one number for all messages of the call, or a sequence with one per message. A missing column has its
default value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prove.history.lines import Line
from prove.history.tables import CallOutcome, MemberEvent, OwnerVerb, ReaderKind, SampleKind

Row = Mapping[str, int | Sequence[int]]
Rows = Iterator[tuple[str, int, Row]]
"""The table, the number of rows, and their values."""
Ids = Callable[[str], int]

_OUTCOMES = {
    "ok": int(CallOutcome.OK),
    "note": int(CallOutcome.OK),
    "fail": int(CallOutcome.FAIL),
    "info": int(CallOutcome.INFO),
}
_READERS = {each.name.lower(): int(each) for each in ReaderKind}
_VERBS = {each.name.lower(): int(each) for each in OwnerVerb}
_SAMPLES = {each.name.lower(): int(each) for each in SampleKind}
# Every consume is a call. A consume that names a generation is also a member event.
_MEMBERSHIPS = {each.name.lower(): int(each) for each in MemberEvent if each is not MemberEvent.CONSUME}
_MS = 1_000_000
_PROGRESS = (
    "partition", "epoch", "start", "committed", "frontier", "high_watermark", "leased", "waiting", "skipped", "acked",
    "dead", "discarded", "filtered", "expired", "cut",
)  # fmt: skip


def rows_of(invoke: Line, outcome: Line | None, counters: tuple[int, int], ids: Ids) -> Rows:
    """Yield all rows of a call, or of the messages of a publish with these counters. No outcome means unknown."""
    row = {
        "process": ids(invoke.process),
        "counter": invoke.counter,
        "outcome": _OUTCOMES[outcome.kind if outcome is not None else "info"],
        "invoked_ns": invoke.time_ns,
        "completed_ns": outcome.time_ns if outcome is not None else 0,
        "topic": ids(invoke.topic),
    }
    told = outcome if outcome is not None and outcome.kind in ("ok", "note") else None
    if invoke.op == "publish":
        return _publish(invoke, told, counters, row, ids)
    if invoke.op == "read":
        return _read(invoke, told, row, ids)
    if invoke.op == "sample":
        return _sample(invoke, row, ids)
    row["group"] = ids(invoke.group)
    if invoke.op == "progress":
        return _progress(invoke, told, row)
    if invoke.op in _MEMBERSHIPS:
        return _member(invoke, told, row, ids)
    row["owner"] = ids(invoke.owner)
    row["verb"] = _VERBS[invoke.op]
    row["invoked_wall_ms"] = invoke.wall_ns // _MS
    row["completed_wall_ms"] = outcome.wall_ns // _MS if outcome is not None else 0
    if invoke.op in ("consume", "seek"):
        return _consume(invoke, told, row)
    return _answer(invoke, told, row)


def _publish(invoke: Line, told: Line | None, counters: tuple[int, int], row: dict[str, int], ids: Ids) -> Rows:
    first, end = counters
    low, high = first - invoke.counter, end - invoke.counter
    found: dict[str, int | Sequence[int]] = {**row, "counter": range(first, end), "batch": invoke.counter}
    _put(found, "producer", ids(invoke.producer) if invoke.producer is not None else None)
    for name, numbers in (
        ("hash", invoke.hashes),
        ("key", invoke.keys),
        ("identity", invoke.identities),
        ("asked_partition", invoke.partitions),
        ("sequence", invoke.sequences),
    ):
        if numbers:
            if len(numbers) != len(invoke.hashes):
                raise ValueError(f"{len(numbers)} of '{name}' for {len(invoke.hashes)} messages")
            found[name] = numbers[low:high]
    if told is not None:
        found["partition"], found["offset"] = told.partitions, told.offsets
        if told.duplicates:
            found["duplicate"] = told.duplicates
    yield "attempt", end - first, found


def _read(invoke: Line, told: Line | None, row: dict[str, int], ids: Ids) -> Rows:
    _put(row, "partition", invoke.partition)
    row["reader"] = _READERS[invoke.reader]
    read = {**row, "log_start": -1, "high_watermark": -1}
    _put(read, "offset", invoke.offset)
    if told is None:
        yield "read", 1, read
        return
    count = len(told.offsets)
    read["count"] = count
    if count:
        read["first"] = told.offsets[0]
    _put(read, "log_start", told.log_start)
    _put(read, "high_watermark", told.high_watermark)
    yield "read", 1, read
    if count:
        seen: dict[str, int | Sequence[int]] = {**row, "offset": told.offsets, "group": ids(invoke.group)}
        seen["hash"] = told.hashes
        for name, numbers in (("key", told.keys), ("identity", told.identities)):
            if numbers:
                seen[name] = numbers
        yield "seen", count, seen


def _consume(invoke: Line, told: Line | None, row: dict[str, int]) -> Rows:
    _put(row, "partition", invoke.partition)
    yield "call", 1, row
    if invoke.op == "consume" and invoke.generation is not None:
        member = {"member": row["owner"], "generation": invoke.generation, "event": int(MemberEvent.CONSUME)}
        yield "member", 1, {**row, **member, "partition": -1}
    if told is None:
        return
    together = sum(len(lease.messages) for lease in told.leases)
    for lease in told.leases:
        got = lease.messages
        delivery: dict[str, int | Sequence[int]] = {
            **row,
            "partition": lease.partition,
            "offset": [each.offset for each in got],
            "token": lease.token,
            "number": [each.delivery for each in got],
            "failures": [each.failures for each in got],
            "expires_ms": lease.expires_ms,
            "lease_ms": invoke.lease_ms or 0,
            "suspect": int(lease.suspect),
            "together": together,
        }
        yield "delivery", len(got), delivery
        looked = [each for each in got if each.hash]
        if looked:
            seen: dict[str, int | Sequence[int]] = {
                **row,
                "partition": lease.partition,
                "offset": [each.offset for each in looked],
                "hash": [each.hash for each in looked],
                "key": [each.key for each in looked],
                "reader": int(ReaderKind.DELIVERY),
            }
            yield "seen", len(looked), seen


def _answer(invoke: Line, told: Line | None, row: dict[str, int]) -> Rows:
    if not invoke.offsets and invoke.op != "extend":
        raise ValueError(f"operation {invoke.counter} answers no message")
    _put(row, "partition", invoke.partition)
    _put(row, "token", invoke.token)
    # No requested delay differs from the delay 0: the group's retry policy then sets the delay.
    row["delay_ms"] = -1 if invoke.delay_ms is None else invoke.delay_ms
    if told is not None:
        _put(row, "expires_ms", told.expires_ms)
    answer: dict[str, int | Sequence[int]] = {**row}
    if invoke.offsets:
        answer["offset"] = invoke.offsets
    if told is not None and told.dead:
        dead = set(told.dead)
        answer["dead"] = [int(offset in dead) for offset in invoke.offsets]
    yield "answer", len(invoke.offsets) or 1, answer


def _progress(invoke: Line, told: Line | None, row: dict[str, int]) -> Rows:
    parts = told.progress if told is not None else ()
    if parts:
        columns = {name: [getattr(part, name) for part in parts] for name in _PROGRESS}
        yield "progress", len(parts), {**row, **columns, "final": int(invoke.final)}


def _member(invoke: Line, told: Line | None, row: dict[str, int], ids: Ids) -> Rows:
    row["member"] = ids(invoke.owner)
    generation = invoke.generation
    if told is not None and told.generation is not None:
        generation = told.generation
    row["generation"] = -1 if generation is None else generation
    if invoke.kind == "note":
        yield (
            "member",
            len(invoke.partitions),
            {**row, "event": _MEMBERSHIPS[invoke.op], "partition": invoke.partitions},
        )
        return
    asked = dict(row)
    _put(asked, "partition", invoke.partition)
    _put(asked, "offset", invoke.offset)
    if invoke.op != "join" and invoke.generation is not None:
        asked["generation"] = invoke.generation
    yield "member", 1, {**asked, "event": _MEMBERSHIPS[invoke.op]}
    if told is not None and told.partitions:
        yield "member", len(told.partitions), {**row, "event": int(MemberEvent.ASSIGNED), "partition": told.partitions}


def _sample(invoke: Line, row: dict[str, int], ids: Ids) -> Rows:
    yield (
        "sample",
        1,
        {
            "kind": _SAMPLES[invoke.sample or ""],
            "topic": row["topic"],
            "group": ids(invoke.group),
            "process": row["process"],
            "at_ns": invoke.time_ns,
            "told": invoke.told,
            "truth": invoke.truth,
            "stale": int(invoke.stale),
        },
    )


def _put(row: dict[str, int] | dict[str, int | Sequence[int]], name: str, told: int | None) -> None:
    if told is not None:
        row[name] = told
