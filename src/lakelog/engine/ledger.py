"""One ledger: a group's progress in one partition as this process knows it, and what is being asked of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lakelog.coordinator.leasing import Config, Granted, Operation, Reply, State, Step, begin, decode_state, replay
from lakelog.engine.clock import Clock
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.model.group import Group, Reading
from lakelog.model.topic import Topic
from lakelog.storage.groups import JournalEntry, JournalRead

TOKEN_BITS = 28
"""For so many leases that tokens stay exact where numbers are floats, after 30 million groups and topics."""


@dataclass(slots=True, eq=False)
class Asked:
    """One operation, on its way."""

    operation: Operation
    done: asyncio.Future[Reply]
    tries: int = 0
    is_unknown: bool = False
    """A commit of it was lost: it may have been written."""
    until_ms: int | None = None
    """When the lease ends that may have been granted so: until then it is found by its request."""

    def lost(self, reply: Reply | LakelogError) -> None:
        """The commit that was to make this reply true may have been written."""
        self.is_unknown = True
        if isinstance(reply, Granted):
            self.until_ms = reply.until_ms

    def refuse(self, error: LakelogError) -> None:
        if not self.done.done():
            self.done.set_exception(OutcomeUnknown.after(error) if self.is_unknown else error)


@dataclass(slots=True, eq=False)
class Ledger:
    """One group in one partition. `state` is None when it has to be read (again)."""

    group: Group
    reading: Reading
    topic: Topic
    partition: int
    version: int = 0
    since_snapshot: int = 0
    state: State | None = None
    seen_at: float = 0.0
    busy: bool = False
    not_before: float = 0.0
    """After a conflict: when to decide again."""
    asked: deque[Asked] = field(default_factory=deque)
    changed: Callable[[Ledger], None] | None = None
    """Called after each commit, by whoever hands out messages here."""
    _config: tuple[int, Config] | None = None

    def beginning(self) -> State:
        """Before anything was decided. Whoever made the group or the topic anew gets no token that was given before."""
        made = self.group.group_id + self.topic.incarnation
        return begin(self.reading.start(self.partition), last_token=made << TOKEN_BITS)

    def config(self) -> Config:
        """The group's settings, as decisions need them; made anew when they change."""
        group = self.group
        if self._config is None or self._config[0] != group.version:
            settings = group.settings
            self._config = (
                group.version,
                Config(
                    order=settings.order,
                    retries=settings.retries,
                    dead_letter=settings.dead_letter,
                    window=settings.window,
                    paused=group.is_paused(self.topic.name),
                ),
            )
        return self._config[1]

    @property
    def pid(self) -> int:
        return self.topic.pid(self.partition)

    @property
    def frontier(self) -> int:
        """Of a state that was read."""
        assert self.state is not None
        return self.state.frontier

    @property
    def cell(self) -> int:
        return self.topic.cells[self.partition]

    def due_in_ms(self, clock: Clock) -> int | None:
        """When something happens here by itself; None if nothing will, or nothing is known."""
        due = self.state.next_due_ms() if self.state is not None else None
        return None if due is None else due - clock.now_ms()

    def is_suspect_due(self, clock: Clock) -> bool:
        """Or will be with the next decision, because a lease is over."""
        due = self.state.first_lost_ms() if self.state is not None else None
        return due is not None and due <= clock.now_ms()


@dataclass(slots=True, eq=False)
class Turn:
    """A ledger's share of one commit: what was asked, and what was decided."""

    ledger: Ledger
    asked: list[Asked]
    step: Step | None = None
    entry: JournalEntry | None = None


def replayed(state: State, read: JournalRead, since_snapshot: int = 0) -> tuple[State, int]:
    for row in read.rows:
        if row.snapshot:
            state, since_snapshot = decode_state(row.body), 0
        else:
            replay(state, row.body)
            since_snapshot += 1
    return state, since_snapshot


def alive(ledger: Ledger) -> list[Asked]:
    """What is asked now, without those who gave up."""
    asked = [each for each in ledger.asked if not each.done.done()]
    ledger.asked.clear()
    return asked


def reply_to(turn: Turn) -> list[tuple[Operation, Reply]]:
    """Answers everybody; what was decided for those who are no longer there is returned."""
    assert turn.step is not None
    gone = []
    for asked, reply in zip(turn.asked, turn.step.replies, strict=True):
        if asked.done.done():
            if not isinstance(reply, LakelogError):
                gone.append((asked.operation, reply))
        elif isinstance(reply, LakelogError):
            asked.done.set_exception(reply)
        else:
            asked.done.set_result(reply)
    return gone


def fail(turn: Turn, error: LakelogError) -> None:
    turn.ledger.state = None if turn.step else turn.ledger.state
    for asked in turn.asked:
        asked.refuse(error)
    turn.asked = []
