"""The check of commit modes finds lost messages, and repeats that a mode does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prove.checker.invariant import RunInfo
from prove.checker.timing import SECOND
from prove.history.tables import CallOutcome, MemberEvent, ReaderKind, Tables, columns, text_id
from prove.pull.commit_modes import CommitRule, RepeatFigures, judge_repeats

GROUP = "etl"
_GROUP, _TOPIC = text_id(GROUP), text_id("orders")


class Story:
    """The rows of a run with one partition, written in the order of time, in seconds."""

    def __init__(self, messages: int) -> None:
        self._rows: dict[str, list[Mapping[str, Any]]] = {"seen": [], "read": [], "member": [], "progress": []}
        self._crashed: set[int] = set()
        for offset in range(messages):
            self._add("seen", "final", offset=offset, reader=int(ReaderKind.FINAL), completed_ns=1)
        self._add("progress", "final", group=_GROUP, final=True, committed=messages)

    def gets(self, program: str, at: float) -> None:
        """Let a program get the partition."""
        self._member(program, MemberEvent.ASSIGNED, at)

    def pulls(self, program: str, at: float, *offsets: int) -> None:
        """Let a program call and get these messages."""
        self._add("read", program, invoked_ns=_ns(at), completed_ns=_ns(at + 0.01), partition=-1)
        for offset in offsets:
            reader = int(ReaderKind.REPLAY)
            self._add("seen", program, offset=offset, reader=reader, group=_GROUP, completed_ns=_ns(at + 0.02))

    def commits(self, program: str, at: float, offset: int, *, outcome: CallOutcome = CallOutcome.OK) -> None:
        self._member(program, MemberEvent.COMMIT, at, offset=offset, outcome=int(outcome))

    def dies(self, program: str, at: float) -> None:
        """Kill a program after a call that never ended."""
        self._add("read", program, invoked_ns=_ns(at), partition=-1, outcome=int(CallOutcome.INFO))
        self._crashed.add(text_id(program))

    def judged(self, mode: str) -> RepeatFigures:
        tables = Tables(by_name={name: columns(name, rows) for name, rows in self._rows.items()})
        run = RunInfo(crashed=frozenset(self._crashed))
        return judge_repeats(tables, run, {GROUP: CommitRule(mode=mode, interval_ns=2 * SECOND)})[0]

    def _member(self, program: str, event: MemberEvent, at: float, **more: Any) -> None:
        times = {"invoked_ns": _ns(at), "completed_ns": _ns(at)}
        self._add("member", program, event=int(event), group=_GROUP, member=text_id(program), **times, **more)

    def _add(self, table: str, program: str, **row: Any) -> None:
        self._rows[table].append({"topic": _TOPIC, "partition": 0, "process": text_id(program), **row})


def _ns(seconds: float) -> int:
    return round(seconds * SECOND)


def taken_over(messages: int, first: int) -> Story:
    """Return a run in which program a gets two messages in two calls, and b gets them from `first` on after its end."""
    story = Story(messages)
    story.gets("a", 0)
    story.pulls("a", 1, 0)
    story.pulls("a", 2, 1)
    story.dies("a", 3)
    story.gets("b", 5)
    story.pulls("b", 6, *range(first, messages))
    story.pulls("b", 7)
    return story


def test_messages_without_a_commit_are_repeated() -> None:
    found = taken_over(3, 0).judged("manual")
    assert (found.repeated, found.most_at_once, found.lost, found.violations) == (2, 2, 0, [])
    assert (found.messages, found.returned) == (3, 5)


def test_a_message_that_no_program_got_is_lost() -> None:
    found = taken_over(4, 3).judged("manual")
    assert found.lost == 1 and "no program was ever done" in str(found.violations[0])


def test_a_message_in_work_at_the_death_is_lost_if_the_group_goes_on() -> None:
    story = Story(1)
    story.gets("a", 0)
    story.pulls("a", 1, 0)
    story.commits("a", 1.5, 1)
    story._crashed.add(text_id("a"))
    assert story.judged("immediate").lost == 1
    assert story.judged("manual").lost == 0, "the program committed it, and died before its next call"


@pytest.mark.parametrize("mode", ["immediate", "interval", "rolling", "manual"])
def test_a_message_below_an_accepted_commit_is_not_repeated(mode: str) -> None:
    story = taken_over(3, 0)
    story.commits("a", 2, 1)
    assert any("after a commit above it" in str(each) for each in story.judged(mode).violations)


def test_immediate_allows_the_messages_of_the_last_call() -> None:
    assert taken_over(3, 1).judged("immediate").violations == []
    assert "got further messages" in str(taken_over(3, 0).judged("immediate").violations[0])


@pytest.mark.parametrize("mode", ["interval", "rolling"])
def test_a_message_that_was_due_long_before_the_end_is_not_repeated(mode: str) -> None:
    def story(end: float) -> Story:
        found = Story(1)
        found.gets("a", 0)
        found.pulls("a", 1, 0)
        found.pulls("a", 1.1)
        found.dies("a", end)
        found.gets("b", end + 5)
        found.pulls("b", end + 6, 0)
        found.pulls("b", end + 7)
        return found

    assert story(3).judged(mode).violations == []
    assert "after it was due" in str(story(12).judged(mode).violations[0])
    tried = story(12)
    tried.commits("a", 3, 1, outcome=CallOutcome.INFO)
    assert tried.judged(mode).violations == []


def test_a_program_that_keeps_the_partition_gets_a_message_once() -> None:
    story = Story(1)
    story.gets("a", 0)
    story.pulls("a", 1, 0)
    story.pulls("a", 2, 0)
    story.pulls("a", 3)
    assert "kept the partition" in str(story.judged("manual").violations[0])


def test_accepted_commits_never_fall() -> None:
    story = taken_over(3, 0)
    story.commits("b", 8, 3)
    story.commits("b", 9, 2)
    assert "committed before" in str(story.judged("manual").violations[0])
