"""S23: messages that retention cuts are old enough, and are counted if they were unfinished."""

from __future__ import annotations

from typing import Any

import pytest

from prove.checker import s23_retention as s23
from prove.history.tables import OwnerVerb
from tests.unit.prove.checker.cases import assert_broken, assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import FAIL, INFO, Rows, row

PLACE = {"topic": "t", "partition": 0, "group": "g"}


def cut(end: int, **more: Any) -> Rows:
    return row("cut", **{**PLACE, "first": 0, "end": end, "unfinished": -1, "at_ns": 50, **more})


def progress(**more: Any) -> Rows:
    """Return progress with ten messages, all considered."""
    told = {"final": 1, "start": 0, "committed": 10, "frontier": 10, "high_watermark": 10, "completed_ns": 900}
    return row("progress", **{**PLACE, **told, "process": "s", "counter": 1, **more})


def said(verb: OwnerVerb, *offsets: int, counter: int = 1, **more: Any) -> Rows:
    told = {"process": "w", "counter": counter, "invoked_ns": counter * 10, "completed_ns": counter * 10 + 5}
    return sum((row("answer", **{**PLACE, **told, "verb": verb, "offset": each, **more}) for each in offsets), Rows())


def seek(counter: int, **more: Any) -> Rows:
    told = {"process": "w", "counter": counter, "invoked_ns": counter * 10, "completed_ns": counter * 10 + 5}
    return row("call", **{**PLACE, **told, "verb": OwnerVerb.SEEK, **more})


ACKED = said(OwnerVerb.ACK, 0, 1, 2, 6, 7, 8, 9)
"""Three are not acked; six are below the cut."""
BROKEN: dict[str, Rows] = {
    "not counted": cut(6) + ACKED + progress(acked=7),
    "one too few": cut(6) + ACKED + progress(acked=7, cut=2),
    "one too many": cut(6) + ACKED + progress(acked=7, cut=4),
    "too many without a cut": ACKED + progress(acked=7, cut=4),
    "acked in an earlier epoch": cut(6) + ACKED + seek(3) + progress(acked=0, cut=0),
    "all acked in an earlier epoch": cut(6) + ACKED + said(OwnerVerb.ACK, 3, 4, 5) + seek(3) + progress(cut=5),
    "a refused ack": cut(6) + ACKED + said(OwnerVerb.ACK, 3, outcome=FAIL) + progress(acked=7, cut=2),
    "fewer than it said": cut(6, unfinished=3, group="g")
    + ACKED
    + said(OwnerVerb.NACK, 3, 4, 5)
    + progress(acked=7, cut=1),
    "too young": cut(6, youngest_ms=101, horizon_ms=100) + ACKED + progress(acked=7, cut=3),
}
KEPT: dict[str, Rows] = {
    "counted": cut(6) + ACKED + progress(acked=7, cut=3),
    "of the partition": cut(6, group=0) + ACKED + progress(acked=7, cut=3),
    "old enough": cut(6, youngest_ms=100, horizon_ms=100) + ACKED + progress(acked=7, cut=3),
    "by count": cut(6, youngest_ms=100) + ACKED + progress(acked=7, cut=3),
    "perhaps acked": cut(6) + ACKED + said(OwnerVerb.ACK, 3, outcome=INFO, completed_ns=0) + progress(acked=8, cut=2),
    "perhaps not": cut(6) + ACKED + said(OwnerVerb.ACK, 3, outcome=INFO, completed_ns=0) + progress(acked=7, cut=3),
    "leased when it was cut, and acked": cut(6, unfinished=3) + ACKED + said(OwnerVerb.ACK, 3, counter=9)
    + progress(acked=8, cut=2),
    "filtered": cut(6) + ACKED + progress(acked=7, filtered=2, cut=1),
    "dead": cut(6) + ACKED + row("dead", **PLACE, offset=3) + progress(acked=7, dead=1, cut=2),
    "died without an answer": cut(6) + ACKED + progress(acked=7, discarded=1, cut=2),
    "committed, not acked": cut(6) + progress(acked=7, cut=3),
    "still leased": cut(6) + ACKED + progress(acked=7, leased=3),
    "not considered yet": cut(6) + progress(frontier=0, committed=0),
    "the group began later": cut(6) + progress(start=6, acked=4),
    "acked before a seek": cut(6) + ACKED + seek(3) + progress(cut=6, frontier=6),
    "a seek of unknown outcome": cut(6) + ACKED + seek(3, outcome=INFO, completed_ns=0)
    + progress(cut=6, frontier=6),
    "no last word": cut(6) + ACKED + progress(final=0),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_s23_catches(case: str) -> None:
    assert_broken(s23, BROKEN[case])


@pytest.mark.parametrize("case", KEPT)
def test_s23_lets_pass(case: str) -> None:
    assert_kept(s23, KEPT[case])


def test_s23_says_how_many() -> None:
    found = assert_broken(s23, BROKEN["not counted"])
    assert str(found[0]) == "S23: g in t/0 counts 0 cut; at least 3 below 6 never ended"


def test_s23_without_a_history() -> None:
    assert_nothing_said_of_nothing(s23)
