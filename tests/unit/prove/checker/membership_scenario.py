"""Random membership changes as the coordinator decides them: histories that are valid by construction."""

from __future__ import annotations

import random

from lakelog.coordinator.membership import (
    AcknowledgeGeneration,
    AssignmentRules,
    JoinGroup,
    LeaveGroup,
    MembershipState,
    TopicsChanged,
    step,
)
from lakelog.model.group import GroupKind
from prove.history.tables import MemberEvent
from tests.unit.prove.checker.member_rows import commit, join, leave, member, revoked
from tests.unit.prove.checker.rows import FAIL, Rows


class MembershipScenario:
    """One group in topic `t`. Time advances with every call."""

    def __init__(self, seed: int, kind: GroupKind) -> None:
        self._dice = random.Random(seed)
        self._rules = AssignmentRules(kind=kind)
        self._state = MembershipState()
        self._now = 1000
        self._fence: dict[int, int] = {}
        self._known: dict[str, tuple[int, set[int]]] = {}
        """The last known generation and partitions of each member."""
        self.rows = Rows()

    def go(self, steps: int, pause_ms: int) -> Rows:
        """Make random changes. In a pause of seconds every member sends some heartbeats."""
        partitions = 6
        for number in range(steps):
            for _ in range(4 if pause_ms > 2000 else 0):
                self._all_beat(500)
            self._now += self._dice.randrange(1, pause_ms)
            name = f"m{self._dice.randrange(6)}"
            if number == steps // 2:
                partitions += 3
                self._step(TopicsChanged(counts={"t": partitions}))
            elif name not in self._known:
                self._step(
                    JoinGroup(member_id=name, topics=["t"], session_ms=1000), TopicsChanged(counts={"t": partitions})
                )
                self.rows += join(name, self._now, self._state.generation, *self._share(name))
                self._known[name] = (self._state.generation, self._share(name))
            elif self._dice.random() < 0.1:
                self._leave(name)
            elif self._dice.random() < 0.5:
                self._beat(name)
            else:
                self._commit(name)
        self._all_beat(1)
        return self.rows

    def _all_beat(self, after_ms: int) -> None:
        self._now += after_ms
        for name in list(self._known):
            self._now += 1
            self._beat(name)

    def _leave(self, name: str) -> None:
        self._step(LeaveGroup(member_id=name))
        if self._dice.random() < 0.5:
            self.rows += leave(name, self._now)
            del self._known[name]
        # Else it was evicted, and is to learn it.

    def _beat(self, name: str) -> None:
        generation, mine = self._known[name]
        if name not in self._state.members:
            self.rows += revoked(name, self._now, generation, *mine)
            del self._known[name]
            return
        self._step(AcknowledgeGeneration(member_id=name, generation=generation))
        now = self._share(name)
        self.rows += revoked(name, self._now, self._state.generation, *(mine - now))
        for each in now:
            self.rows += member(MemberEvent.ASSIGNED, name, self._now, self._state.generation, partition=each)
        self._known[name] = (self._state.generation, now)

    def _commit(self, name: str) -> None:
        generation, mine = self._known[name]
        for partition in sorted(mine)[:1]:
            present = self._state.members.get(name)
            held = present is not None and partition in (
                *present.assigned.get("t", ()),
                *present.revoked.get("t", ()),
            )
            right = held and generation >= self._fence.get(partition, 0)
            if right:
                self._fence[partition] = generation
            self.rows += commit(name, self._now, generation, partition, **({} if right else {"outcome": FAIL}))

    def _step(self, *operations: JoinGroup | LeaveGroup | AcknowledgeGeneration | TopicsChanged) -> None:
        self._state = step(self._state, operations, self._rules, self._now)

    def _share(self, name: str) -> set[int]:
        return set(self._state.members[name].assigned.get("t", ()))
