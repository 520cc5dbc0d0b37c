"""The model of `lease_reference`: one object per message and per lease, and the changes that all verbs share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from lakelog.coordinator.leasing.operations import StepContext
from lakelog.coordinator.leasing.state import MESSAGE_TRANSITIONS, MessageState
from lakelog.model.group import Order


class Memory(Enum):
    """How well a closed lease is remembered."""

    DETAIL = "what became of each of its messages"
    OUTCOME = "the one outcome of all of them"
    NONE = "nothing"


class Refused(Exception):
    """With the code of the refusal."""


@dataclass
class Entry:
    """One message, as the group sees it."""

    offset: int
    key: int
    filtered: bool = False
    expires: int | None = None
    stage: MessageState = MessageState.UNCONSIDERED
    due: int = 0
    suspect: bool = False
    deliveries: int = 0
    failures: int = 0
    token: int = 0
    """Owner of its last lease."""

    def is_over(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


@dataclass
class Hold:
    """A lease, running or closed."""

    token: int
    owner: str
    request: str
    until: int
    suspect: bool
    alone: bool
    open: list[int]
    said: dict[int, str] = field(default_factory=dict)
    closed: int | None = None


@dataclass
class Progress:
    """Progress of one group in one partition. `seen` counts what happened."""

    start: int
    order: Order
    entries: list[Entry] = field(default_factory=list)
    """From offset 0 on, also those below the start."""
    frontier: int = 0
    epoch: int = 0
    generation: int = 0
    last_token: int = 0
    holds: list[Hold] = field(default_factory=list)
    """In order of their tokens."""
    closed: list[Hold] = field(default_factory=list)
    """In order of their ends."""
    memory: Callable[[int], Memory] = lambda token: Memory.DETAIL
    """A closed lease."""
    dead_messages: list[tuple[int, int, int, int]] = field(default_factory=list)
    accepted_values: list[bytes] = field(default_factory=list)
    """Values of which the present step accepts a run."""
    filtered: list[int] = field(default_factory=list)
    """Messages that the last answer, or the one that it repeats, finished as filtered."""
    seen: Counter[str] = field(default_factory=Counter)
    lower: list[int] = field(default_factory=list)
    """Times from which on the present step holds."""
    upper: list[int] = field(default_factory=list)

    # Questions --------------------------------------------------------------------------------------------------------

    def of_stage(self, *stages: MessageState) -> list[Entry]:
        return [each for each in self.entries[self.start :] if each.stage in stages]

    def of_key(self, key: int, *stages: MessageState) -> list[Entry]:
        return [each for each in self.of_stage(*stages) if each.key == key]

    def is_blocked(self, key: int) -> bool:
        return key != 0 and bool(self.of_key(key, MessageState.LEASED, MessageState.WAITING, MessageState.SKIPPED))

    def held_by(self, owner: str) -> list[Hold]:
        return [hold for hold in self.holds if hold.owner == owner]

    def committed(self) -> int:
        """Counted up from the start, message by message."""
        offset = self.start
        while offset < self.frontier and self.entries[offset].stage.is_end:
            offset += 1
        return offset

    # Changes ----------------------------------------------------------------------------------------------------------

    def publish(self, key: int, filtered: bool, expires: int | None) -> None:
        effective = {Order.KEY: key, Order.PARTITION: 1, Order.NONE: 0}[self.order]
        self.entries.append(Entry(len(self.entries), effective, filtered, expires))

    def move(self, entry: Entry, stage: MessageState, why: str) -> None:
        assert stage in MESSAGE_TRANSITIONS[entry.stage], f"{entry} may not become {stage} ({why})"
        self.seen[f"{entry.stage} to {stage}"] += 1
        self.seen[why] += 1
        entry.stage = stage

    def leave(self, hold: Hold, offset: int, said: str) -> Entry:
        hold.open.remove(offset)
        hold.said[offset] = said
        return self.entries[offset]

    def close_empty(self, now: int) -> None:
        for hold in [hold for hold in self.holds if not hold.open]:
            self.holds.remove(hold)
            hold.closed = now
            self.closed.append(hold)

    def wait(self, hold: Hold, offset: int, due: int, said: str, *, failed: bool, suspect: bool) -> None:
        entry = self.leave(hold, offset, said)
        self.move(entry, MessageState.WAITING, said)
        entry.due, entry.suspect = due, suspect
        entry.failures += failed
        self.go_behind(hold, entry, said)

    def go_behind(self, hold: Hold, front: Entry, said: str) -> None:
        """Later messages of the key leave the lease with it."""
        for offset in [offset for offset in hold.open if offset > front.offset]:
            if front.key and self.entries[offset].key == front.key:
                self.move(self.leave(hold, offset, said), MessageState.SKIPPED, "given back behind another")

    def die(self, hold: Hold, offset: int, context: StepContext, said: str, why: str) -> None:
        entry = self.leave(hold, offset, said)
        entry.failures += 1
        if context.config.dead_letter:
            self.dead_messages.append((offset, self.epoch, entry.deliveries, entry.failures))
        self.move(entry, MessageState.DEAD if context.config.dead_letter else MessageState.DISCARDED, why)
