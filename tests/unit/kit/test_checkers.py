"""Each invariant: histories that break it, and ones that nearly do. A checker that cannot fail proves nothing."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.checkers import (
    CHECKS,
    FinalMessage,
    FinalPartition,
    FinalRead,
    Verdict,
    assert_valid,
    judge,
)
from tests.kit.history import History, Operation, Seen, load, value_hash
from tests.kit.recorder import Attempt, Placed, Recorder


def publish(counter: int, value: str, offset: int | None = None, **more: Any) -> Operation:
    """A publish of `a` that took from 10 x counter to 10 x counter + 5: ok when it has an offset, else unknown."""
    more = {"process": "a", "topic": "t", "invoked_ns": counter * 10, "completed_ns": counter * 10 + 5, **more}
    more = {"outcome": "info" if offset is None else "ok", "partition": None if offset is None else 0, **more}
    return Operation(op="publish", counter=counter, hash=value, offset=offset, **more)


def fetch(counter: int, start: int, messages: str, high_watermark: int, **more: Any) -> Operation:
    """A fetch by `r`; messages as "5:x 6:y"."""
    seen = tuple(Seen(int(item.split(":")[0]), item.split(":")[1]) for item in messages.split())
    more = {"process": "r", "invoked_ns": counter * 10, "completed_ns": counter * 10 + 5, "log_start": 0, **more}
    return Operation(
        op="fetch", counter=counter, topic="t", outcome="ok", asked_partition=0, asked_offset=start,
        messages=seen, high_watermark=high_watermark, **more,
    )  # fmt: skip


def final(*values: str | FinalMessage, log_start: int = 0, end: int | None = None, partition: int = 0) -> FinalRead:
    """One partition with these values, one offset after the other."""
    messages = tuple(
        replace(value, offset=offset) if isinstance(value, FinalMessage) else FinalMessage(offset=offset, hash=value)
        for offset, value in enumerate(values, log_start)
    )
    end = log_start + len(values) if end is None else end
    part = FinalPartition(topic="t", partition=partition, log_start=log_start, high_watermark=end, messages=messages)
    return FinalRead(partitions=(part,))


def keyed(value: str, key: str | None = None, idempotency_key: str | None = None) -> FinalMessage:
    return FinalMessage(offset=-1, hash=value, key=key, idempotency_key=idempotency_key)


def with_offsets(*offsets: int, log_start: int, end: int) -> FinalRead:
    messages = tuple(FinalMessage(offset=offset, hash=f"v{offset}") for offset in offsets)
    part = FinalPartition(topic="t", partition=0, log_start=log_start, high_watermark=end, messages=messages)
    return FinalRead(partitions=(part,))


def both(one: FinalRead, other: FinalRead) -> FinalRead:
    return FinalRead(partitions=one.partitions + other.partitions)


Case = tuple[list[Operation], FinalRead]

BROKEN: dict[str, Case] = {
    "S1 acked and gone": ([publish(1, "x", 0), publish(2, "y", 1)], final("x")),
    "S1 acked, another's value there": ([publish(1, "x", 0)], final("y")),
    "S1 acked at the log start, gone": ([publish(1, "x", 5)], final(log_start=5, end=6)),
    "S1 acked in a partition that is not there": ([publish(1, "x", 0, partition=3)], final("y")),
    "S1 acked without a place": ([publish(1, "x", None, outcome="ok")], final()),
    "S2 never attempted": ([publish(1, "x", 0)], final("x", "ghost")),
    "S2 refused and visible": ([publish(1, "x", None, outcome="fail")], final("x")),
    "S2 under another key": ([publish(1, "x", 0, key="k")], final(keyed("x", "other"))),
    "S2 in another topic": ([publish(1, "x", 0, topic="u")], final("x")),
    "S2 fetched, never attempted": ([publish(1, "x", 0), fetch(2, 0, "0:ghost", 1)], final("x")),
    "S2 fetched before the attempt": ([fetch(1, 0, "0:x", 1), publish(2, "x", 0)], final("x")),
    "S3 two acks of one offset": ([publish(1, "x", 0), publish(2, "y", 0)], final("x")),
    "S3 fetched otherwise than it ended": ([publish(1, "x"), publish(2, "y"), fetch(3, 0, "0:x", 1)], final("y")),
    "S3 two fetches differ": ([fetch(3, 0, "0:x", 1), fetch(4, 0, "0:y", 1)], final()),
    "S4 one key acked at two offsets": (
        [publish(1, "x", 0, idempotency_key="i"), publish(2, "x", 1, idempotency_key="i", process="b")],
        final("x", "x"),
    ),
    "S4 one key acked in two partitions": (
        [publish(1, "x", 0, idempotency_key="i"), publish(2, "x", 0, idempotency_key="i", partition=1)],
        both(final("x"), final("x", partition=1)),
    ),
    "S4 unknown and its repeat both there": (
        [publish(1, "x", idempotency_key="i"), publish(2, "x", 1, idempotency_key="i")],
        final("x", "x"),
    ),
    "S4 the final read has a key twice": ([publish(1, "x", 0)], final(keyed("x", None, "i"), keyed("y", None, "i"))),
    "S4 same key, other bytes, accepted": (
        [publish(1, "x", 0, idempotency_key="i"), publish(2, "y", 0, idempotency_key="i")],
        final("x"),
    ),
    "S4 a retry of one sequence doubled": (
        [publish(1, "x", producer="p", sequence=1), publish(2, "x", 1, producer="p", sequence=1)],
        final("x", "x"),
    ),
    "S4 one attempt, two copies": ([publish(1, "x", 0)], final("x", "x")),
    "S5 a hole": ([], with_offsets(0, 2, log_start=0, end=3)),
    "S5 the first is missing": ([], with_offsets(1, log_start=0, end=2)),
    "S5 the last is missing": ([], final("x", end=2)),
    "S5 beyond the high watermark": ([], final("x", "y", end=1)),
    "S5 an offset twice": ([], with_offsets(0, 1, 1, log_start=0, end=2)),
    "S5 read out of order": ([], with_offsets(1, 0, log_start=0, end=2)),
    "S5 one after the other, swapped": ([publish(1, "x", 1, key="k"), publish(2, "y", 0, key="k")], final("y", "x")),
    "S5 swapped over a distance": (
        [publish(1, "x", 2, key="k"), publish(2, "y", 0, key="k"),
         publish(3, "z", 1, key="k", invoked_ns=1, completed_ns=99)],
        final("y", "z", "x"),
    ),
    "S5 sequence swapped": (
        [publish(1, "x", 1, key="k", producer="p", sequence=1, completed_ns=99),
         publish(2, "y", 0, key="k", producer="p", sequence=2)],
        final("y", "x"),
    ),
    "S5 batch swapped": (
        [publish(1, "x", 1, key="k", batch=1, completed_ns=99), publish(2, "y", 0, key="k", batch=1)],
        final("y", "x"),
    ),
    "S5 a late unknown overtakes nothing, but an early one was acked behind it": (
        [publish(1, "x", 1, key="k"), publish(2, "y", key="k")],
        final(keyed("y", "k"), keyed("x", "k")),
    ),
    "S6 a fetch saw less than an earlier one": ([fetch(1, 0, "", 5), fetch(2, 0, "", 4)], final(*"abcde")),
    "S6 a fetch saw less than was acked": ([publish(1, "x", 0), fetch(2, 0, "", 0)], final("x")),
    "S6 the end is below what was seen": ([fetch(1, 0, "", 5)], final("a")),
    "S6 the end is below what was acked": ([publish(1, "x", 3)], final("a")),
    "S6 a gap inside an answer": ([fetch(1, 0, "0:a 2:c", 3)], final("a", "b", "c")),
    "S6 a gap at the start of an answer": ([fetch(1, 1, "2:c", 3)], final("a", "b", "c")),
    "S6 an offset twice in an answer": ([fetch(1, 0, "0:a 0:a", 3)], final("a", "b", "c")),
    "S7 half a batch, acked": (
        [publish(1, "x", 0, batch=1), publish(2, "y", 1, batch=1)], final("x", end=2),
    ),
    "S7 half a batch, unknown, one key": (
        [publish(1, "x", batch=1, key="k"), publish(2, "y", batch=1, key="k")], final(keyed("x", "k")),
    ),
    "S7 half a batch, unknown, partition asked for": (
        [publish(1, "x", batch=1, asked_partition=0), publish(2, "y", batch=1, asked_partition=0)], final("y"),
    ),
    "S7 half a batch above the log start": (
        [publish(1, "x", batch=1, asked_partition=0), publish(2, "y", batch=1, asked_partition=0)],
        final("a", "y", log_start=7),
    ),
}  # fmt: skip

# Each looks like a break of its invariant at first sight.
NEARLY: dict[str, Case] = {
    "S1 retired by retention": ([publish(1, "x", 4), publish(2, "y", 5)], final("y", log_start=5)),
    "S1 unknown and gone": ([publish(1, "x", 0), publish(2, "y")], final("x")),
    "S1 refused and gone": ([publish(1, "x", 0), publish(2, "y", None, outcome="fail")], final("x")),
    "S2 unknown and visible": ([publish(1, "x")], final("x")),
    "S2 one attempt refused, another not": (
        [publish(1, "x", None, outcome="fail"), publish(2, "x", 0)], final("x"),
    ),
    "S2 fetched while the call was under way": (
        [publish(1, "x", 0, completed_ns=99), fetch(2, 0, "0:x", 1)], final("x"),
    ),
    "S3 the same content everywhere": ([publish(1, "x", 0), fetch(2, 0, "0:x", 1)], final("x")),
    "S3 the same offset of two partitions": (
        [publish(1, "x", 0), publish(2, "y", 0, partition=1)], both(final("x"), final("y", partition=1)),
    ),
    "S4 a repeat answered with the first place": (
        [publish(1, "x", 0, idempotency_key="i"), publish(2, "x", 0, idempotency_key="i", duplicate=True)], final("x"),
    ),
    "S4 same key, other bytes, refused": (
        [publish(1, "x", 0, idempotency_key="i"), publish(2, "y", None, idempotency_key="i", outcome="fail")],
        final("x"),
    ),
    "S4 same key in two topics": (
        [publish(1, "x", 0, idempotency_key="i"), publish(2, "x", 0, idempotency_key="i", topic="u")],
        both(final("x"), FinalRead(partitions=(replace(final("x").partitions[0], topic="u"),))),
    ),
    "S4 no key, tried twice, twice there": ([publish(1, "x"), publish(2, "x", 1)], final("x", "x")),
    "S5 starts at the log start": ([], final("x", "y", log_start=7)),
    "S5 an empty partition": ([], final(log_start=7)),
    "S5 at the same time": (
        [publish(1, "x", 1, key="k", completed_ns=25), publish(2, "y", 0, key="k")], final("y", "x"),
    ),
    "S5 other keys": (
        [publish(1, "x", 1, key="k"), publish(2, "y", 0, key="l")], final(keyed("y", "l"), keyed("x", "k")),
    ),
    "S5 other producers": (
        [publish(1, "x", 1, key="k"), publish(2, "y", 0, key="k", process="b")],
        final(keyed("y", "k"), keyed("x", "k")),
    ),
    "S5 a repeat of what stands before": (
        [publish(1, "x", key="k", idempotency_key="i"), publish(2, "y", 1, key="k"),
         publish(3, "x", 0, key="k", idempotency_key="i")],
        final(keyed("x", "k"), keyed("y", "k")),
    ),
    "S5 an unknown that came late": (
        [publish(1, "x", key="k"), publish(2, "y", 0, key="k")], final(keyed("y", "k"), keyed("x", "k")),
    ),
    "S6 at the same time": ([fetch(1, 0, "", 5, completed_ns=99), fetch(2, 0, "", 4)], final(*"abcde")),
    "S6 retired below the log start": ([fetch(1, 0, "3:d 4:e", 5, log_start=3)], final("d", "e", log_start=3)),
    "S6 nothing there yet": ([fetch(1, 5, "", 5), fetch(2, 5, "", 5)], final(*"abcde")),
    "S6 a reader that moved back": ([fetch(1, 3, "3:d", 5), fetch(2, 0, "0:a 1:b", 5)], final(*"abcde")),
    "S7 nothing of a batch": ([publish(1, "x", batch=1, key="k"), publish(2, "y", batch=1, key="k")], final()),
    "S7 a whole batch in two partitions, one of them unknown and gone": (
        [publish(1, "x", 0, batch=1), publish(2, "y", None, batch=1, asked_partition=1)], final("x"),
    ),
    "S7 one message refused": (
        [publish(1, "x", 0, batch=1), publish(2, "y", None, batch=1, outcome="fail", asked_partition=0)], final("x"),
    ),
    "S7 one message repeats another batch's": (
        [publish(1, "x", 0, idempotency_key="i", batch=1), publish(2, "x", batch=2, idempotency_key="i", key=None),
         publish(3, "y", batch=2, asked_partition=0)],
        final("x"),
    ),
    "S7 two calls": ([publish(1, "x", 0, batch=1), publish(2, "y", batch=2, asked_partition=0)], final("x")),
    "S7 the log start runs through a batch": (
        [publish(1, "x", batch=1, asked_partition=0), publish(2, "y", batch=1, asked_partition=0)],
        final("y", log_start=7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_break_is_found(name: str) -> None:
    operations, read = BROKEN[name]
    violations = CHECKS[name[:2]](operations, read)
    assert violations
    assert {violation.invariant for violation in violations} == {name[:2]}
    assert all(operation in operations for violation in violations for operation in violation.operations)


@pytest.mark.parametrize("name", NEARLY)
def test_what_only_looks_like_a_break_is_not_one(name: str) -> None:
    operations, read = NEARLY[name]
    assert CHECKS[name[:2]](operations, read) == []


def test_every_invariant_has_both() -> None:
    assert {name[:2] for name in BROKEN} == {name[:2] for name in NEARLY} == set(CHECKS)


def test_a_cut_history_is_unknown_never_valid() -> None:
    read = final("x")
    whole = History(operations=(publish(1, "x", 0),))
    assert {judgement.verdict for judgement in judge(whole, read).values()} == {Verdict.VALID}
    cut = replace(whole, cut=("p1.jsonl, line 3: the line is torn",))
    assert {judgement.verdict for judgement in judge(cut, read).values()} == {Verdict.UNKNOWN}
    with pytest.raises(AssertionError, match="line is torn"):
        assert_valid(cut, read)
    broken = judge(cut, final("y"))["S1"]
    assert broken.verdict is Verdict.UNKNOWN and len(broken.violations) == 1


def test_assert_valid_shows_the_counter_example() -> None:
    with pytest.raises(AssertionError, match=r"S1 invalid \(1\): S1: acked x at \('t', 0, 0\), found None \[a-1\]"):
        assert_valid(History(operations=(publish(1, "x", 0),)), final())


class _Log:
    """A partition in memory, to make a long true history of."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.keys: dict[str, int] = {}

    def append(self, attempt: Attempt) -> Placed:
        known = self.keys.get(attempt.idempotency_key or "")
        if known is not None:
            return Placed(partition=0, offset=known, duplicate=True)
        self.messages.append((attempt.value.decode(), attempt.key or ""))
        self.keys[attempt.idempotency_key or ""] = len(self.messages) - 1
        return Placed(partition=0, offset=len(self.messages) - 1)


def test_a_long_true_history_with_losses_and_repeats_is_valid(tmp_path: Path) -> None:
    dice, log = random.Random(7), _Log()
    with Recorder(tmp_path, "w") as writer, Recorder(tmp_path, "r") as reader:
        for number in range(3000):
            attempt = Attempt(topic="t", value=writer.value(), key=f"k{number % 9}", idempotency_key=f"i{number}")
            for _ in range(2 if dice.random() < 0.3 else 1):
                with writer.publish(attempt) as call:
                    reached = dice.random() < 0.95
                    placed = log.append(attempt) if reached else None
                    if placed is None or dice.random() < 0.05:
                        call.info("the answer was lost")
                    else:
                        call.ok(placed)
            if number % 50 == 0:
                start = max(0, len(log.messages) - 60)
                with reader.fetch("t", 0, start) as fetched:
                    tail = [Seen(start + i, value_hash(v.encode()), k) for i, (v, k) in enumerate(log.messages[start:])]
                    fetched.ok(tail, log_start=0, high_watermark=len(log.messages))
    read = final(*(keyed(value_hash(value.encode()), key) for value, key in log.messages))
    history = load(tmp_path)
    started = time.monotonic()
    assert_valid(history, read)
    # 300,000 operations have to be judged in CI: this must stay close to linear.
    assert time.monotonic() - started < 5
    without_last = final(*(keyed(value_hash(value.encode()), key) for value, key in log.messages[:-1]))
    assert {name for name, one in judge(history, without_last).items() if one.violations} == {"S1", "S6"}
