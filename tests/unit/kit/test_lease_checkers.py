"""Each invariant of leases: histories that break it, and ones that nearly do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakelog.model.group import Fixed, Order
from tests.kit.checkers import Verdict
from tests.kit.lease_checkers import DeadSeen, LeaseTruth, Rules, assert_leases_valid, judge_leases
from tests.kit.lease_history import (
    Got,
    LeaseHistory,
    LeaseLine,
    LeaseOperation,
    LeaseRecorder,
    LeaseSeen,
    ProgressSeen,
    load_leases,
)

MS = 1_000_000
LEASE_MS = 1000
RULES = Rules(retries=Fixed(max=1, seconds=0.2))


def op(name: str, at: int, **more: Any) -> LeaseOperation:
    """An operation of owner `a`, asked at that millisecond and answered one later."""
    more = {"owner": "a", "outcome": "ok", "process": f"p{at}", "took": 1, **more}
    took = more.pop("took")
    answered = None if took is None else (at + took) * MS
    return LeaseOperation(
        op=name, counter=at, topic="t", group="g", invoked_ns=at * MS, invoked_wall_ns=at * MS,
        completed_ns=answered, completed_wall_ns=answered, **more,
    )  # fmt: skip


def consume(at: int, token: int, messages: str, owner: str = "a", **more: Any) -> LeaseOperation:
    """One lease, granted at that millisecond; messages as "offset[:delivery[:failures]] …"."""
    got = tuple(Got(*map(int, item.split(":"))) for item in messages.split())
    lease = LeaseSeen(0, token, more.pop("granted", at) + LEASE_MS, more.pop("suspect", False), got)
    return op("consume", at, owner=owner, lease_ms=LEASE_MS, leases=(lease,), **more)


def said(name: str, at: int, token: int, *offsets: int, **more: Any) -> LeaseOperation:
    return op(name, at, partition=0, token=token, offsets=offsets, **more)


def ack(at: int, token: int, *offsets: int, **more: Any) -> LeaseOperation:
    return said("ack", at, token, *offsets, **more)


def acked(at: int, token: int, *offsets: int) -> LeaseOperation:
    """The same by owner `b`."""
    return ack(at, token, *offsets, owner="b")


def nack(at: int, token: int, *offsets: int, **more: Any) -> LeaseOperation:
    return said("nack", at, token, *offsets, **more)


def part(count: int, **more: Any) -> ProgressSeen:
    """All of the messages acked, unless otherwise said."""
    dead = more.get("dead", 0)
    told = {"committed": count, "frontier": count, "high_watermark": count, "acked": count - dead, **more}
    return ProgressSeen(**{"partition": 0, "epoch": 0, "start": 0, **told})


def truth(keys: str = "k", dead: tuple[DeadSeen, ...] = (), **more: Any) -> LeaseTruth:
    """One message for each letter, which is its key; `-` has none. All are acked, or dead."""
    found = {(0, offset): None if key == "-" else key for offset, key in enumerate(keys)}
    progress = more.pop("progress", part(len(keys), **{"dead": len(dead), **more.pop("counts", {})}))
    return LeaseTruth(topic="t", group="g", keys=found, progress=(progress,), dead=dead, rules=more.pop("rules", RULES))


def letter(offset: int, failures: int = 2, deliveries: int = 2) -> DeadSeen:
    return DeadSeen(partition=0, offset=offset, failures=failures, deliveries=deliveries)


def sample(at: int, took: int = 1, **more: Any) -> LeaseOperation:
    return op("progress", at, took=took, progress=(part(**more),))


Case = tuple[list[LeaseOperation], LeaseTruth]
FAILED = [consume(0, 1, "0"), nack(10, 1, 0), consume(300, 2, "0:2:1", "b")]
DIED = [*FAILED, nack(310, 2, 0, owner="b", dead=(0,))]
LOST = {"outcome": "info", "took": None}

BROKEN: dict[str, Case] = {
    "S8 another owner before the expiry": (
        [consume(0, 1, "0"), consume(999, 2, "0:2", "b"), acked(1001, 2, 0)],
        truth(),
    ),
    "S8 another owner before the extended expiry": (
        [consume(0, 1, "0"), said("extend", 500, 1, expires_ms=1500), consume(1200, 2, "0:2", "b"),
         acked(1300, 2, 0)],
        truth(),
    ),
    "S8 another owner before the nack was sent": (
        [consume(0, 1, "0"), consume(500, 2, "0:2:1", "b"), nack(600, 1, 0), acked(700, 2, 0)], truth()
    ),
    "S8 two owners with one token": ([consume(0, 1, "0"), consume(1500, 1, "0:2", "b"), acked(1600, 1, 0)], truth()),
    "S8 the token fell": ([consume(0, 2, "0"), consume(1500, 1, "0:2", "b"), acked(1600, 1, 0)], truth()),
    "S9 a stale token accepted": (
        [consume(0, 1, "0"), consume(1000, 2, "0:2", "b"), ack(1100, 1, 0), acked(1200, 2, 0)], truth()
    ),
    "S9 accepted after the end": ([consume(0, 1, "0"), ack(1001, 1, 0)], truth()),
    "S9 an extend accepted after the end": (
        [consume(0, 1, "0"), said("extend", 1001, 1, expires_ms=2001), ack(1500, 1, 0)], truth()
    ),
    "S9 of another owner": ([consume(0, 1, "0"), acked(10, 1, 0)], truth()),
    "S9 of a lease that nobody got": ([consume(0, 1, "0"), ack(10, 1, 0), ack(20, 7, 0)], truth()),
    "S9 a refused ack finished it": ([consume(0, 1, "0"), ack(10, 1, 0, outcome="fail")], truth()),
    "S9 accepted across a seek": (
        [consume(0, 1, "0"), op("seek", 10, epoch=1), ack(20, 1, 0), consume(30, 2, "0"), ack(40, 2, 0)], truth()
    ),
    "S10 delivered after its ack": (
        [consume(0, 1, "0"), ack(10, 1, 0), consume(20, 2, "0:2", "b"), acked(30, 2, 0)],
        truth(),
    ),
    "S10 told again after its ack": ([consume(0, 1, "0"), ack(10, 1, 0), consume(20, 1, "0")], truth()),
    "S10 delivered after its death": ([*DIED, consume(600, 3, "0:3:1")], truth(dead=(letter(0),))),
    "S11 acked and dead": ([*FAILED, acked(310, 2, 0)], truth(dead=(letter(0),))),
    "S11 ended as nothing": ([consume(0, 1, "0"), ack(10, 1, 0)], truth("kl")),
    "S11 two dead letters": (DIED, truth(dead=(letter(0), letter(0)), counts={"acked": 0, "dead": 1})),
    "S11 not drained": ([consume(0, 1, "0"), ack(10, 1, 0)], truth(counts={"acked": 0, "leased": 1, "committed": 0})),
    "S11 an ack not counted": (
        [consume(0, 1, "0 1"), ack(10, 1, 0, 1)], truth("kl", counts={"acked": 1, "filtered": 1})
    ),
    "S11 a dead letter not counted": (DIED, truth(dead=(letter(0),), counts={"dead": 0, "discarded": 1})),
    "S12 a number is missing": ([consume(0, 1, "0"), consume(1000, 2, "0:3", "b"), acked(1100, 2, 0)], truth()),
    "S12 it begins with 2": ([consume(0, 1, "0:2"), ack(10, 1, 0)], truth()),
    "S12 a number twice": ([consume(0, 1, "0"), consume(1000, 2, "0", "b"), acked(1100, 2, 0)], truth()),
    "S12 a nack not counted": ([*FAILED[:2], consume(300, 2, "0:2", "b"), acked(310, 2, 0)], truth()),
    "S12 a refused nack counted": (
        [consume(0, 1, "0 1"), nack(1001, 1, 0, outcome="fail"), consume(1010, 2, "0:2:1", "b"), acked(1020, 2, 0),
         consume(1010, 3, "1:2", "b"), acked(1020, 3, 1)],
        truth("kl"),
    ),
    "S12 failed by its neighbour's death": (
        [consume(0, 1, "0 1"), consume(1000, 2, "0:2:1", "b"), acked(1010, 2, 0), consume(1000, 3, "1:2", "b"),
         acked(1010, 3, 1)],
        truth("kl"),
    ),
    "S12 failed by the first end of a lease": (
        [consume(0, 1, "0"), consume(1200, 2, "0:2:1", "b"), acked(1210, 2, 0)],
        truth(),
    ),
    "S12 delivered at the limit": ([*DIED[:3], consume(1400, 3, "0:3:2"), ack(1410, 3, 0)], truth()),
    "S12 at the limit and not dead": (
        [*FAILED, nack(310, 2, 0, owner="b"), consume(600, 3, "0:3:2"), ack(610, 3, 0)],
        truth(),
    ),
    "S12 died too early": ([consume(0, 1, "0"), nack(10, 1, 0, dead=(0,))], truth(dead=(letter(0, 1, 1),))),
    "S12 died and never failed": ([consume(0, 1, "0 1"), ack(10, 1, 1)], truth("kl", dead=(letter(0, 2, 1),))),
    "S12 the letter has too few deliveries": (DIED, truth(dead=(letter(0, 2, 1),))),
    "S13 before its back-off": ([*FAILED[:2], consume(150, 2, "0:2:1", "b"), acked(160, 2, 0)], truth()),
    "S13 before the delay that was asked for": (
        [consume(0, 1, "0"), nack(10, 1, 0, delay_ms=900), consume(300, 2, "0:2:1", "b"), acked(310, 2, 0)],
        truth(),
    ),
    "S13 a release with a delay": (
        [consume(0, 1, "0"), said("release", 10, 1, 0, delay_ms=900), consume(300, 2, "0:2", "b"),
         acked(310, 2, 0)],
        truth(),
    ),
    "S14 a message vanished from the sums": (
        [consume(0, 1, "0 1"), sample(5, count=2, committed=0, acked=0, leased=1), ack(10, 1, 0, 1)], truth("kl")
    ),
    "S14 at the end": ([consume(0, 1, "0 1"), ack(10, 1, 0, 1)], truth("kl", counts={"acked": 1})),
    "S14 more published than there": ([consume(0, 1, "0"), ack(10, 1, 0)], truth("kl", progress=part(1))),
    "S15 while the one before is open": (
        [consume(0, 1, "0"), consume(5, 2, "1", "b"), ack(10, 1, 0), acked(20, 2, 1)], truth("kk")
    ),
    "S15 by the same owner, in another lease": (
        [consume(0, 1, "0"), consume(5, 2, "1"), ack(10, 1, 0), ack(20, 2, 1)], truth("kk")
    ),
    "S15 while the one before waits": (
        [*FAILED[:2], consume(20, 2, "1", "b"), acked(30, 2, 1), consume(300, 3, "0:2:1"), ack(310, 3, 0)],
        truth("kk"),
    ),
    "S15 partition order": (
        [consume(0, 1, "0"), consume(5, 2, "1", "b"), ack(10, 1, 0), acked(20, 2, 1)],
        truth("kl", rules=replace(RULES, order=Order.PARTITION)),
    ),
    "S16 beyond an open message": (
        [consume(0, 1, "0 1"), ack(10, 1, 1), sample(20, count=2, acked=1, leased=1), ack(30, 1, 0)], truth("kl")
    ),
    "S16 behind a finished one": (
        [consume(0, 1, "0 1"), ack(10, 1, 0), sample(20, count=2, committed=0, acked=1, leased=1), ack(30, 1, 1)],
        truth("kl"),
    ),
    "S16 it fell": (
        [consume(0, 1, "0 1"), ack(10, 1, 0), sample(20, count=2, committed=1, acked=1, leased=1),
         sample(25, count=2, committed=0, acked=1, leased=1), ack(30, 1, 1)],
        truth("kl"),
    ),
    "L5 never again": ([consume(0, 1, "0 1", "z"), consume(1500, 2, "1:2"), ack(1600, 2, 1)], truth("kl")),
    "L5 too late": ([consume(0, 1, "0 1", "z"), consume(3100, 2, "0:2"), ack(3200, 2, 0), consume(1500, 3, "1:2"),
                     ack(1600, 3, 1)], truth("kl")),
}  # fmt: skip

VALID: dict[str, Case] = {
    "acked": ([consume(0, 1, "0 1"), ack(10, 1, 0), ack(20, 1, 1)], truth("kl")),
    "nacked, due, acked": ([*FAILED, acked(310, 2, 0)], truth()),
    "failed to death": (DIED, truth(dead=(letter(0),))),
    "fatal": ([consume(0, 1, "0"), said("fail", 10, 1, 0, dead=(0,))], truth(dead=(letter(0, 1, 1),))),
    "discarded": ([consume(0, 1, "0"), said("discard", 10, 1, 0)], truth(counts={"acked": 0, "discarded": 1})),
    "the end of a lease": (
        [consume(0, 1, "0 1"), ack(10, 1, 1), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0)],
        truth("kl"),
    ),
    "expired alone: a failure, and its back-off": (
        [consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1"), ack(2210, 3, 0)],
        truth(),
    ),
    "died of owners that were lost": (
        [consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1", suspect=True)],
        truth(dead=(letter(0, 2, 3),)),
    ),
    "a refused ack, then another's": (
        [consume(0, 1, "0"), ack(1001, 1, 0, outcome="fail"), consume(1002, 2, "0:2", "b"), acked(1010, 2, 0)],
        truth(),
    ),
    "a lost answer, repeated": ([consume(0, 1, "0"), ack(10, 1, 0, **LOST), ack(2000, 1, 0)], truth()),
    "a lost answer of an ack": ([consume(0, 1, "0"), ack(10, 1, 0, **LOST)], truth()),
    "a lost ack that did not happen": (
        [consume(0, 1, "0"), ack(10, 1, 0, **LOST), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0)], truth()
    ),
    "a lost nack that happened": ([FAILED[0], nack(10, 1, 0, **LOST), FAILED[2], acked(310, 2, 0)], truth()),
    "a lost consume took it once": (
        [op("consume", 0, **LOST), consume(1000, 2, "0:2:1", "b"), acked(1010, 2, 0)], truth()
    ),
    "told again before its ack": ([consume(0, 1, "0"), consume(5, 1, "0", granted=0), ack(10, 1, 0)], truth()),
    "extended": ([consume(0, 1, "0"), said("extend", 500, 1, expires_ms=1500), ack(1400, 1, 0)], truth()),
    "a key in one lease": ([consume(0, 1, "0 1"), ack(10, 1, 0), ack(20, 1, 1)], truth("kk")),
    "a nack gives back its key": (
        [consume(0, 1, "0 1"), nack(10, 1, 0), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1)],
        truth("kk"),
    ),
    "a dead letter frees its key": ([*DIED, consume(320, 3, "1"), ack(330, 3, 1)], truth("kk", dead=(letter(0),))),
    "without keys": ([consume(0, 1, "0"), consume(5, 2, "1", "b"), ack(10, 1, 0), acked(20, 2, 1)], truth("--")),
    "again after a seek": (
        [consume(0, 1, "0"), ack(5, 1, 0), op("seek", 10, epoch=1), consume(20, 2, "0"), ack(30, 2, 0)],
        truth(counts={"epoch": 1}),
    ),
    "a seek ends leases": (
        [consume(0, 1, "0"), op("seek", 10, epoch=1), ack(15, 1, 0, outcome="fail"), consume(20, 2, "0", "b"),
         acked(30, 2, 0)],
        truth(counts={"epoch": 1}),
    ),
    "samples on the way": (
        [consume(0, 1, "0 1 2"), sample(5, count=3, committed=0, acked=0, leased=3), ack(10, 1, 1),
         sample(20, count=3, committed=0, acked=1, leased=2), ack(30, 1, 0), ack(50, 1, 2),
         sample(40, count=3, committed=2, acked=2, leased=1, took=20)],
        truth("klm"),
    ),
    "a dead owner's message comes again": (
        [consume(0, 1, "0 1", "z"), consume(2900, 2, "0:2"), ack(3000, 2, 0), consume(1000, 3, "1:2"), ack(1600, 3, 1)],
        truth("kl"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_history_is_invalid(name: str) -> None:
    operations, final = BROKEN[name]
    judgements = judge_leases(LeaseHistory(operations=tuple(operations)), final, dead_owners=["z"])
    found = judgements[name.split()[0]]
    assert found.verdict is Verdict.INVALID, judgements
    with pytest.raises(AssertionError, match=name.split()[0]):
        assert_leases_valid(LeaseHistory(operations=tuple(operations)), final, dead_owners=["z"])


@pytest.mark.parametrize("name", VALID)
def test_a_valid_history_is_valid(name: str) -> None:
    operations, final = VALID[name]
    assert_leases_valid(LeaseHistory(operations=tuple(operations)), final, dead_owners=["z"])


def test_a_cut_history_is_unknown() -> None:
    operations, final = VALID["acked"]
    history = LeaseHistory(operations=tuple(operations), cut=("p1: it ends before its end line",))
    assert {each.verdict for each in judge_leases(history, final).values()} == {Verdict.UNKNOWN}
    with pytest.raises(AssertionError, match="p1: it ends"):
        assert_leases_valid(history, final)


@pytest.mark.parametrize("seek", [op("seek", 10, **LOST), op("seek", 18, took=5, epoch=1)])
def test_a_lease_in_doubt_of_its_epoch_is_unknown(seek: LeaseOperation) -> None:
    history = LeaseHistory(operations=(seek, consume(20, 1, "0"), ack(30, 1, 0)))
    assert {each.verdict for each in judge_leases(history, truth()).values()} == {Verdict.UNKNOWN}


def test_what_is_recorded_is_loaded(tmp_path: Path) -> None:
    recorder = LeaseRecorder(tmp_path, "w1", clock=iter([10, 20, 30, 40]).__next__, wall=iter([5, 6, 7, 8]).__next__)
    asked = LeaseLine(kind="invoke", counter=0, op="consume", topic="t", group="g", owner="w1", lease_ms=LEASE_MS)
    first = recorder.invoke(asked)
    leases = (LeaseSeen(0, 1, 2000, False, (Got(7), Got(8, 2, 1))),)
    recorder.complete(first, LeaseLine(kind="ok", counter=0, leases=leases))
    recorder.invoke(replace_op(asked, "ack", 7), replace_op(asked, "nack", 8))
    history = load_leases(tmp_path, crashed=["w1"])
    assert history.cut == ()
    assert [(each.op, each.outcome) for each in history.operations] == [
        ("consume", "ok"), ("ack", "info"), ("nack", "info"),
    ]  # fmt: skip
    told = history.operations[0]
    assert (told.invoked_ns, told.completed_ns, told.completed_wall_ns, told.leases) == (10, 20, 6, leases)
    recorder._file.close()  # As a kill would: without an end.
    assert load_leases(tmp_path).cut == ("w1.jsonl: it ends before its end line",)
    path = tmp_path / "w1.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    assert load_leases(tmp_path, crashed=["w1"]).cut


def replace_op(line: LeaseLine, name: Any, offset: int) -> LeaseLine:
    return LeaseLine(
        kind="invoke", counter=0, op=name, topic=line.topic, group=line.group, owner=line.owner, partition=0, token=1,
        offsets=(offset,),
    )  # fmt: skip
