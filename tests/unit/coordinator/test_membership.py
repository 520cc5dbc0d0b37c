"""Membership: who gets what when members come, go and fall silent; what a cursor group waits for; the bytes of it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakelog.coordinator.membership import (
    AcknowledgeGeneration,
    AssignmentRules,
    EvictMembers,
    JoinGroup,
    LeaveGroup,
    MembershipPhase,
    MembershipState,
    Operation,
    TopicsChanged,
    decode,
    encode,
    is_expired,
    step,
)
from lakelog.errors import UnsupportedFormat
from lakelog.model.group import Assignor, GroupKind

CURSOR, LEASE = AssignmentRules(kind=GroupKind.CURSOR), AssignmentRules(kind=GroupKind.LEASE)
both_kinds = pytest.mark.parametrize("rules", [CURSOR, LEASE], ids=lambda rules: rules.kind)
SESSION = 30_000
OVER = SESSION + 1_001
"""Time after the last heartbeat at which a member is evicted: its session plus the slack."""


def join(*members: str, topics: tuple[str, ...] = ("orders",)) -> list[Operation]:
    return [JoinGroup(member_id=member, topics=topics, session_ms=SESSION) for member in members]


def started(rules: AssignmentRules, *members: str, partitions: int = 6) -> MembershipState:
    """All of them joined in one step."""
    return step(MembershipState(), [TopicsChanged(counts={"orders": partitions}), *join(*members)], rules, 1_000)


def ack(state: MembershipState, member: str) -> AcknowledgeGeneration:
    return AcknowledgeGeneration(member_id=member, generation=state.generation)


def shares(state: MembershipState) -> dict[str, list[int]]:
    return {member.member_id: member.assigned.get("orders", []) for member in state.members.values()}


@both_kinds
def test_those_who_join_together_get_their_shares_at_once_in_one_rebalance(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B", "C")
    assert sorted(map(len, shares(state).values())) == [2, 2, 2]
    assert (state.phase, state.generation, state.rebalances) == (MembershipPhase.STABLE, 1, 1)
    assert state.last_rebalance_ms == 1_000


def test_a_lease_group_assigns_at_once() -> None:
    state = step(started(LEASE, "A"), join("B"), LEASE, 2_000)
    assert shares(state) == {"A": [0, 1, 2], "B": [3, 4, 5]}
    assert (state.phase, state.generation, state.rebalances) == (MembershipPhase.STABLE, 2, 2)
    assert not any(member.revoked or member.promised for member in state.members.values())


def test_a_cursor_group_takes_back_first_and_gives_when_that_was_heard() -> None:
    revoking = step(started(CURSOR, "A"), join("B"), CURSOR, 2_000)
    assert shares(revoking) == {"A": [0, 1, 2], "B": []}
    assert revoking.members["A"].revoked == revoking.members["B"].promised == {"orders": [3, 4, 5]}
    assert (revoking.phase, revoking.generation) == (MembershipPhase.REBALANCING, 2)
    assert revoking.idle() == []
    granted = step(revoking, [ack(revoking, "A")], CURSOR, 5_000)
    assert shares(granted) == {"A": [0, 1, 2], "B": [3, 4, 5]}
    assert (granted.phase, granted.generation, granted.rebalances) == (MembershipPhase.STABLE, 3, 2)
    assert not granted.members["A"].revoked
    assert not granted.members["B"].promised


@pytest.mark.parametrize("generation", [0, 1, 99])
def test_s17_an_old_or_impossible_generation_acknowledges_nothing(generation: int) -> None:
    revoking = step(started(CURSOR, "A"), join("B"), CURSOR, 2_000)
    assert step(revoking, [AcknowledgeGeneration(member_id="A", generation=generation)], CURSOR, 3_000) is revoking


def test_s17_what_nobody_reads_any_longer_is_not_free_before_it_was_given_up() -> None:
    counts = TopicsChanged(counts={"clicks": 1, "orders": 6})
    state = step(started(CURSOR, "A"), [counts, *join("A", topics=("clicks",))], CURSOR, 2_000)
    state = step(state, join("B"), CURSOR, 3_000)
    assert shares(state)["B"] == []
    assert shares(step(state, [ack(state, "A")], CURSOR, 4_000))["B"] == [0, 1, 2, 3, 4, 5]


def test_s17_what_is_revoked_later_has_to_be_acknowledged_later() -> None:
    first = step(started(CURSOR, "A"), join("B"), CURSOR, 2_000)
    second = step(first, join("C"), CURSOR, 3_000)
    assert second.members["A"].revoked == {"orders": [2, 3, 4, 5]}
    assert step(second, [AcknowledgeGeneration(member_id="A", generation=first.generation)], CURSOR, 4_000) is second
    granted = step(second, [ack(second, "A")], CURSOR, 4_000)
    assert sorted(map(len, shares(granted).values())) == [2, 2, 2]


@pytest.mark.parametrize("ending", [LeaveGroup(member_id="A"), EvictMembers(seen_ms={"A": 1_000})])
def test_who_is_gone_needs_not_acknowledge(ending: Operation) -> None:
    revoking = step(started(CURSOR, "A"), join("B"), CURSOR, 2_000)
    state = step(revoking, [ending], CURSOR, 1_000 + OVER)
    assert shares(state) == {"B": [0, 1, 2, 3, 4, 5]}
    assert state.phase is MembershipPhase.STABLE


@both_kinds
def test_s17_who_replaces_has_everything_at_once_in_a_new_generation(rules: AssignmentRules) -> None:
    before = started(rules, "A", "B")
    replacing = JoinGroup(member_id="C", topics=("orders",), session_ms=SESSION, replaces=True)
    state = step(before, [replacing], rules, 2_000)
    assert shares(state) == {"C": [0, 1, 2, 3, 4, 5]}
    assert (state.phase, state.generation, state.rebalances) == (MembershipPhase.STABLE, 2, 2)
    assert not state.members["C"].promised
    assert step(state, [replacing], rules, 3_000) is state


def test_s17_of_two_who_replace_together_the_last_stays() -> None:
    both = [JoinGroup(member_id=name, topics=("orders",), session_ms=SESSION, replaces=True) for name in ("B", "C")]
    assert shares(step(started(CURSOR, "A"), both, CURSOR, 2_000)) == {"C": [0, 1, 2, 3, 4, 5]}


def test_what_was_to_be_given_up_is_kept_when_the_reason_is_gone() -> None:
    revoking = step(started(CURSOR, "A"), join("B"), CURSOR, 2_000)
    state = step(revoking, [LeaveGroup(member_id="B")], CURSOR, 3_000)
    assert shares(state) == {"A": [0, 1, 2, 3, 4, 5]}
    assert (state.phase, state.generation) == (MembershipPhase.STABLE, 3)
    assert not state.members["A"].revoked


def test_a_partition_is_given_on_as_soon_as_its_own_member_has_heard() -> None:
    """The others that have to give something up do not hold it up."""
    revoking = step(started(CURSOR, "A", "B"), join("C"), CURSOR, 2_000)
    assert revoking.members["A"].revoked
    assert revoking.members["B"].revoked
    state = step(revoking, [ack(revoking, "B")], CURSOR, 3_000)
    assert [len(share) for share in shares(state).values()] == [2, 2, 1]
    assert state.phase is MembershipPhase.REBALANCING
    assert state.rebalances == 2


def test_the_time_that_partitions_wait_is_added_up() -> None:
    state = step(started(CURSOR, "A"), join("B"), CURSOR, 2_000)
    assert state.rebalancing_ms(2_300) == 300
    state = step(state, [ack(state, "A")], CURSOR, 2_500)
    assert state.rebalancing_ms(9_000) == 500
    state = step(state, join("C"), CURSOR, 10_000)
    state = step(state, join("D"), CURSOR, 10_100)
    state = step(state, [ack(state, "A"), ack(state, "B")], CURSOR, 10_200)
    assert (state.phase, state.rebalancing_ms(11_000), state.last_rebalance_ms) == (MembershipPhase.STABLE, 700, 10_200)


@both_kinds
def test_s18_joining_again_with_the_same_topics_changes_nothing(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B")
    assert step(state, join("A"), rules, 5_000) is state
    other = step(state, [JoinGroup(member_id="A", topics=("orders",), session_ms=5_000, host="h")], rules, 5_000)
    assert (other.generation, other.rebalances, shares(other)) == (1, 1, shares(state))
    assert (other.members["A"].session_ms, other.members["A"].host) == (5_000, "h")


@both_kinds
def test_joining_again_with_other_topics_is_a_rebalance(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B")
    counts = TopicsChanged(counts={"clicks": 2})
    state = step(state, [counts, *join("A", topics=("clicks", "clicks"))], rules, 2_000)
    assert state.members["A"].assigned == {"clicks": [0, 1]}
    assert list(state.members) == ["A", "B"]
    if rules is CURSOR:
        assert state.members["A"].revoked == {"orders": [0, 2, 4]}
        state = step(state, [ack(state, "A")], rules, 3_000)
    assert shares(state)["B"] == [0, 1, 2, 3, 4, 5]


@both_kinds
def test_harmless_operations_change_nothing(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B")
    nothing: list[Operation] = [
        LeaveGroup(member_id="Z"),
        ack(state, "A"),
        ack(state, "Z"),
        TopicsChanged(counts={"orders": 6, "unread": 7}),
        EvictMembers(seen_ms={"A": 1_000 + OVER, "B": 1_000 + OVER}),
    ]
    assert step(state, nothing, rules, 1_000 + OVER) is state


@both_kinds
def test_a_member_is_evicted_when_its_session_is_over_and_not_before(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B")
    seen = {"A": 5_000, "B": 5_001}
    assert step(state, [EvictMembers(seen_ms=seen)], rules, 5_000 + OVER - 1) is state
    evicted = step(state, [EvictMembers(seen_ms=seen)], rules, 5_000 + OVER)
    assert shares(evicted) == {"B": [0, 1, 2, 3, 4, 5]}


@both_kinds
def test_nobody_is_evicted_whose_heartbeats_are_lost_or_older_than_its_joining(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B")
    assert step(state, [EvictMembers(seen_ms={})], rules, 10**9) is state
    assert step(state, [EvictMembers(seen_ms={"A": 0, "B": 0})], rules, 1_000 + SESSION) is state


@both_kinds
def test_who_comes_back_after_eviction_is_the_youngest(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B", partitions=1)
    assert state.idle() == ["B"]
    state = step(state, [EvictMembers(seen_ms={"A": 1_000}), *join("A")], rules, 1_000 + OVER)
    assert list(state.members) == ["B", "A"]
    assert state.idle() == ["A"]


@both_kinds
def test_leaving_and_joining_in_one_step_gives_a_new_share(rules: AssignmentRules) -> None:
    state = step(started(rules, "A"), [LeaveGroup(member_id="A"), *join("A")], rules, 1_000)
    assert shares(state) == {"A": [0, 1, 2, 3, 4, 5]}


@both_kinds
def test_the_last_one_to_leave_makes_it_empty(rules: AssignmentRules) -> None:
    state = step(started(rules, "A"), [LeaveGroup(member_id="A")], rules, 2_000)
    assert (state.phase, state.generation, state.members, state.counts) == (MembershipPhase.EMPTY, 2, {}, {})


@both_kinds
def test_added_partitions_are_shared_out_and_a_topic_that_is_gone_vanishes(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B")
    grown = step(state, [TopicsChanged(counts={"orders": 8})], rules, 2_000)
    assert shares(grown) == {"A": [0, 2, 4, 6], "B": [1, 3, 5, 7]}
    gone = step(grown, [TopicsChanged(counts={"orders": 0})], rules, 3_000)
    assert gone.idle() == ["A", "B"]
    assert gone.phase is MembershipPhase.STABLE


@both_kinds
def test_s18_an_idle_member_that_comes_or_goes_disturbs_nobody(rules: AssignmentRules) -> None:
    state = started(rules, "A", "B", partitions=2)
    more = step(state, join("C"), rules, 2_000)
    assert (more.generation, more.rebalances, more.idle()) == (1, 1, ["C"])
    assert step(more, [LeaveGroup(member_id="C")], rules, 3_000).generation == 1


def test_an_empty_group_cannot_wait_for_anybody() -> None:
    with pytest.raises(AssertionError):
        MembershipPhase.EMPTY.to(MembershipPhase.REBALANCING)


def test_the_bytes_give_the_state_back() -> None:
    state = step(started(CURSOR, "A", "B"), join("C"), CURSOR, 2_000)
    assert decode(encode(state)) == state
    assert decode(b"") == MembershipState()


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UnsupportedFormat) as refused:
        decode(msgspec.msgpack.encode((2, {"other": "shape"})))
    assert refused.value.subject == {"format": 2}


def test_900_partitions_and_64_members_fit_into_a_few_kilobytes() -> None:
    state = started(CURSOR, *(f"member-{n:02}" for n in range(64)), partitions=900)
    assert len(encode(state)) < 10_000


IDS = st.sampled_from([f"m{n}" for n in range(6)])
TOPICS = st.sets(st.sampled_from(["clicks", "orders"]), min_size=1)


class AnyHistory(RuleBasedStateMachine):
    """Members come, go, fall silent and hear late, in any order. Each works on what it last heard of."""

    @initialize(kind=st.sampled_from(GroupKind), assignor=st.sampled_from(Assignor), several=st.booleans())
    def begin(self, kind: GroupKind, assignor: Assignor, several: bool) -> None:
        self.group_rules = AssignmentRules(kind=kind, assignor=assignor)
        self.several = several
        self.state = step(MembershipState(), [TopicsChanged(counts={})], self.group_rules, 0)
        self.counts = {"clicks": 3, "orders": 5}
        self.now = 1_000
        self.changes = 0
        self.seen: dict[str, int] = {}
        self.owners: dict[tuple[int, str, int], str] = {}
        self.working: dict[str, set[tuple[str, int]]] = {}
        """The partitions that each member works on until it learns of a new assignment."""
        self.heard: dict[str, int] = {}

    def run_step(self, *operations: Operation) -> None:
        before, self.now = self.state, self.now + 10
        counts = TopicsChanged(counts=self.counts)
        self.state = decode(encode(step(before, [counts, *operations], self.group_rules, self.now)))
        self.changes += len(before.members.keys() ^ self.state.members.keys())
        self.changes += before.counts != self.state.counts
        same = before.members.keys() & self.state.members.keys()
        self.changes += sum(before.members[m].topics != self.state.members[m].topics for m in same)
        for gone in before.members.keys() - self.state.members.keys():
            # Its session expired, and it knows that; its later calls are fenced by its generation.
            self.working.pop(gone, None)
            self.heard.pop(gone, None)
            self.seen.pop(gone, None)
        assert self.state.generation >= before.generation
        assert self.state.rebalances >= before.rebalances

    @rule(member=IDS, topics=TOPICS)
    def join(self, member: str, topics: set[str]) -> None:
        chosen = tuple(sorted(topics)) if self.several else ("orders",)
        self.run_step(JoinGroup(member_id=member, topics=chosen, session_ms=SESSION))
        self.seen[member] = self.now
        self.hear(member)

    @rule(members=st.lists(IDS, min_size=2, max_size=6, unique=True))
    def join_together(self, members: list[str]) -> None:
        self.run_step(*join(*members))
        for member in members:
            self.seen[member] = self.now

    @rule(member=IDS)
    def replace(self, member: str) -> None:
        """All others hear it at their next call, which is refused: what they work on counts no longer."""
        self.run_step(JoinGroup(member_id=member, topics=("orders",), session_ms=SESSION, replaces=True))
        assert list(self.state.members) == [member]
        self.seen[member] = self.now
        self.working = {name: busy for name, busy in self.working.items() if name == member}

    @rule(member=IDS)
    def leave(self, member: str) -> None:
        self.run_step(LeaveGroup(member_id=member))

    @rule(member=IDS)
    def heartbeat(self, member: str) -> None:
        """It says what it has heard of before, and hears what holds now."""
        if member in self.state.members:
            self.seen[member] = self.now
            self.run_step(AcknowledgeGeneration(member_id=member, generation=self.heard.get(member, 0)))
            self.hear(member)

    def hear(self, member: str) -> None:
        assigned = self.state.members[member].assigned
        self.working[member] = {(topic, n) for topic, ns in assigned.items() for n in ns}
        self.heard[member] = self.state.generation

    @rule(silent=st.sets(IDS))
    def time_passes(self, silent: set[str]) -> None:
        self.now += OVER
        self.seen.update({member: self.now for member in self.seen if member not in silent})
        self.run_step(EvictMembers(seen_ms=self.seen))
        assert not silent & self.state.members.keys() & self.seen.keys()

    @precondition(lambda self: self.counts["orders"] < 8)
    @rule()
    def partition_added(self) -> None:
        self.counts["orders"] += 1
        self.run_step()

    @invariant()
    def s17_one_member_per_partition_and_generation(self) -> None:
        for member in self.state.members.values():
            for topic, partitions in member.assigned.items():
                for n in partitions:
                    place = (self.state.generation, topic, n)
                    assert self.owners.setdefault(place, member.member_id) == member.member_id

    @invariant()
    def s17_no_two_work_on_a_partition_of_a_cursor_group(self) -> None:
        if self.group_rules.kind is GroupKind.CURSOR:
            busy = [partition for partitions in self.working.values() for partition in partitions]
            assert len(busy) == len(set(busy))

    @invariant()
    def s18_no_more_rebalances_than_changes(self) -> None:
        assert self.state.rebalances <= self.changes

    @invariant()
    def every_partition_is_assigned_or_promised_once(self) -> None:
        members = self.state.members.values()
        assigned = [(t, n) for m in members for t, ns in m.assigned.items() for n in ns]
        promised = [(t, n) for m in members for t, ns in m.promised.items() for n in ns]
        revoked = {(t, n) for m in members for t, ns in m.revoked.items() for n in ns}
        read = {topic for m in members for topic in m.topics}
        expected = sorted((topic, n) for topic in read for n in range(self.counts[topic]))
        assert sorted(assigned + promised) == expected
        assert set(promised) <= revoked
        assert not set(assigned) & revoked

    @invariant()
    def the_phase_says_how_it_is(self) -> None:
        waits = any(member.revoked for member in self.state.members.values())
        assert self.state.phase is (
            MembershipPhase.REBALANCING
            if waits
            else MembershipPhase.STABLE
            if self.state.members
            else MembershipPhase.EMPTY
        )
        assert self.group_rules.kind is GroupKind.CURSOR or not waits

    def teardown(self) -> None:
        """S18: once everyone has been heard, it comes to rest, and stays so."""
        if not hasattr(self, "state"):
            return
        for _ in range(2):
            for member in list(self.state.members):
                self.heartbeat(member)
        assert self.state.phase is not MembershipPhase.REBALANCING
        before = self.state
        for member in list(self.state.members):
            self.heartbeat(member)
        assert self.state == before


AnyHistory.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAnyHistory = AnyHistory.TestCase


@pytest.mark.parametrize("assignor", [Assignor.STICKY, Assignor.COOPERATIVE])
@pytest.mark.parametrize("kind", list(GroupKind))
def test_s18_members_that_are_not_involved_keep_their_partitions(assignor: Assignor, kind: GroupKind) -> None:
    rules = AssignmentRules(kind=kind, assignor=assignor)
    before = started(rules, *(f"m{n}" for n in range(8)), partitions=24)
    left = step(before, [LeaveGroup(member_id="m3")], rules, 2_000)
    for member, share in shares(left).items():
        assert set(shares(before)[member]) <= set(share)
    joined = step(left, join("m9"), rules, 3_000)
    losers = [m for m, share in shares(left).items() if set(share) - set(shares(joined)[m])]
    assert len(losers) == 3
    assert all(len(shares(left)[m]) == 4 for m in losers)
    assert is_expired(before.members["m1"], {"m1": 0}, 1_000 + OVER)
