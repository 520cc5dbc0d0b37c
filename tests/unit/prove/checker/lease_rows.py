"""Small histories of one group in one partition, as rows of deliveries, answers and outcomes.

An owner is its name, a time is in milliseconds on both clocks, and a call takes one millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from lakelog.model.group import Fixed
from prove.checker import l5_redelivery as l5
from prove.checker import s08_lease_tokens as s08
from prove.checker import s09_stale_answers as s09
from prove.checker import s10_acked_messages as s10
from prove.checker import s11_final_states as s11
from prove.checker import s12_delivery_counts as s12
from prove.checker import s13_due_times as s13
from prove.checker import s14_conservation as s14
from prove.checker import s15_key_order as s15
from prove.checker import s16_committed_offsets as s16
from prove.checker.invariant import GroupRules, RunInfo, Violation
from prove.history.tables import CallOutcome, OwnerVerb, ReaderKind, Tables, columns, text_id

Row = tuple[str, dict[str, Any]]
Rows = list[Row]
MS = 1_000_000
LEASE_MS = 1000
RULES = GroupRules(retries=Fixed(max=1, seconds=0.2))
TOPIC, GROUP = text_id("t"), text_id("g")
CHECKS: dict[str, ModuleType] = {
    "S8": s08, "S9": s09, "S10": s10, "S11": s11, "S12": s12, "S13": s13, "S14": s14, "S15": s15, "S16": s16,
    "L5": l5,
}  # fmt: skip
FAILED = {"outcome": CallOutcome.FAIL}
LOST = {"outcome": CallOutcome.INFO, "took": None}
"""A call of unknown outcome."""


def call(at: int, *, took: int | None = 1, owner: str = "a", **more: Any) -> dict[str, Any]:
    """Return the columns of a call at that time."""
    ended = {} if took is None else {"completed_ns": (at + took) * MS, "completed_wall_ms": at + took}
    return {
        "process": text_id(owner), "counter": at, "outcome": CallOutcome.OK,
        "invoked_ns": at * MS, "invoked_wall_ms": at,
        "topic": TOPIC, "group": GROUP, "partition": 0, "owner": text_id(owner), **ended, **more,
    }  # fmt: skip


def consume(at: int, token: int, messages: str, owner: str = "a", **more: Any) -> Rows:
    """Return one lease, granted at that time; messages as "offset[:delivery[:failures]] …"."""
    found = [[*map(int, item.split(":"))] for item in messages.split()]
    granted, size = more.pop("granted", at), more.pop("together", len(found))
    lease = {"token": token, "expires_ms": granted + LEASE_MS, "lease_ms": LEASE_MS, "together": size}
    made = call(at, owner=owner, **more)
    asked = {name: value for name, value in made.items() if name != "suspect"}
    return [("call", {**asked, "verb": OwnerVerb.CONSUME, "partition": -1})] + [
        ("delivery", {**made, **lease, "offset": offset, "number": (rest or [1])[0], "failures": ([*rest, 0, 0])[1]})
        for offset, *rest in found
    ]


def lost_consume(at: int, owner: str = "a", **more: Any) -> Rows:
    """Return a consume without deliveries; of unknown outcome by default."""
    return [("call", {**call(at, owner=owner, **{**LOST, **more}), "verb": OwnerVerb.CONSUME, "partition": -1})]


def seek(at: int, **more: Any) -> Rows:
    return [("call", {**call(at, **more), "verb": OwnerVerb.SEEK, "partition": -1})]


def said(verb: OwnerVerb, at: int, token: int, *offsets: int, **more: Any) -> Rows:
    """Return answers; `dead` are the offsets that became dead letters."""
    dead, more = more.get("dead", ()), {name: more[name] for name in more if name != "dead"}
    told = {"delay_ms": -1, **call(at, **more), "verb": verb, "token": token}
    return [("answer", {**told, "offset": offset, "dead": offset in dead}) for offset in offsets]


def ack(at: int, token: int, *offsets: int, **more: Any) -> Rows:
    return said(OwnerVerb.ACK, at, token, *offsets, **more)


def acked(at: int, token: int, *offsets: int) -> Rows:
    """Return the same by owner `b`."""
    return ack(at, token, *offsets, owner="b")


def nack(at: int, token: int, *offsets: int, **more: Any) -> Rows:
    return said(OwnerVerb.NACK, at, token, *offsets, **more)


def extend(at: int, token: int, until: int, **more: Any) -> Rows:
    return said(OwnerVerb.EXTEND, at, token, -1, expires_ms=until, **more)


def progress(count: int, **more: Any) -> dict[str, Any]:
    """Return progress with all messages acked by default."""
    told = {"committed": count, "frontier": count, "high_watermark": count, "acked": count - more.get("dead", 0)}
    return {**told, **more}


def sample(at: int, *, took: int = 1, **more: Any) -> Rows:
    made = call(at, took=took, owner="m")
    names = ("owner", "invoked_wall_ms", "completed_wall_ms")
    return [("progress", {**{name: made[name] for name in made if name not in names}, **progress(**more)})]


def letter(offset: int, failures: int = 2, deliveries: int = 2, **more: Any) -> Row:
    told = {"topic": TOPIC, "group": GROUP, "partition": 0, "failures": failures, "deliveries": deliveries}
    return ("dead", {**told, "offset": offset, **more})


def end(keys: str = "k", letters: Iterable[Row] = (), **more: Any) -> Rows:
    """Return the final state with one message per letter, which is its key; `-` has none, `.` is no longer in the log.
    All are acked or dead by default."""
    found = [*letters]
    told = {"topic": TOPIC, "group": GROUP, "partition": 0, "final": True}
    told |= progress(**{"count": len(keys), "dead": len(found), **more})
    where = {"topic": TOPIC, "partition": 0, "reader": ReaderKind.FINAL}
    return [
        *found,
        ("progress", told),
        *(
            ("seen", {**where, "offset": offset, "key": 0 if key == "-" else text_id(key), "hash": offset + 100})
            for offset, key in enumerate(keys)
            if key != "."
        ),
    ]


def tables(*parts: Rows) -> Tables:
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, row in (row for part in parts for row in part):
        rows.setdefault(name, []).append(row)
    # In no particular order.
    return Tables(by_name={name: columns(name, found[::-1]) for name, found in rows.items()})


def run(**more: Any) -> RunInfo:
    """Return a run in which owner `z` is dead."""
    names = {text_id(name): name for name in ("t", "g", "a", "b", "z", "m")}
    rules = {(TOPIC, GROUP): more.pop("rules", RULES)}
    return RunInfo(names=names, rules=rules, crashed=frozenset({text_id("z")}), **more)


def found(invariant: str, history: Iterable[Rows], **more: Any) -> list[Violation]:
    """Return the violations that the check finds; none may be in doubt."""
    made, known = tables(*history), run(**more)
    checked = CHECKS[invariant].INVARIANT
    assert checked.name == invariant and checked.doubt(made, known) is None
    check: Callable[[Tables, RunInfo], list[Violation]] = checked.check
    violations = check(made, known)
    assert all(each.invariant == invariant and str(each) for each in violations)
    return violations


FAILED_ONCE: list[Rows] = [consume(0, 1, "0"), nack(10, 1, 0), consume(300, 2, "0:2:1", "b")]
DIED: list[Rows] = [*FAILED_ONCE, nack(310, 2, 0, owner="b", dead=(0,))]
