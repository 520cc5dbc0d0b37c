"""Assignors: every partition to exactly one member, even shares, and as few moves as possible for the sticky ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.coordinator.assignors import POLICIES, Assignment, idle
from lakelog.model.group import Assignor

STICKY = (Assignor.STICKY, Assignor.COOPERATIVE)
all_assignors = pytest.mark.parametrize("assignor", list(Assignor))
sticky_assignors = pytest.mark.parametrize("assignor", STICKY)

TOPICS = ("clicks", "orders", "refunds")
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})
IDS = st.lists(st.integers(0, 40).map("m{}".format), max_size=12, unique=True)
SUBSCRIPTIONS = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True)


@st.composite
def mixed_members(draw: st.DrawFn) -> dict[str, Sequence[str]]:
    return {member_id: draw(SUBSCRIPTIONS) for member_id in draw(IDS)}


@st.composite
def presents(draw: st.DrawFn, counts: Mapping[str, int], members: Sequence[str]) -> Assignment:
    """Who has what now: of members who may be gone, of partitions that may be gone, most of them owned."""
    owners = [*members, "gone", None]
    present: dict[str, dict[str, list[int]]] = {}
    for topic, count in counts.items():
        for partition in range(count + 1):
            owner = draw(st.sampled_from(owners))
            if owner is not None:
                present.setdefault(owner, {}).setdefault(topic, []).append(partition)
    return present


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Sequence[str]], dict[str, int], Assignment]:
    members, counts = draw(mixed_members()), draw(COUNTS)
    return members, counts, draw(presents(counts, list(members)))


def pairs(assignment: Assignment) -> list[tuple[str, int, str]]:
    return [(topic, n, member) for member, share in assignment.items() for topic, ns in share.items() for n in ns]


def load(assignment: Assignment, member: str) -> int:
    return sum(map(len, assignment[member].values()))


def join(assignor: Assignor, members: Sequence[str], partitions: int, present: Assignment | None = None) -> Assignment:
    return POLICIES[assignor]({member: ["orders"] for member in members}, {"orders": partitions}, present or {})


def shown(assignment: Assignment) -> dict[str, list[int]]:
    return {member: list(share.get("orders", [])) for member, share in assignment.items()}


@all_assignors
@given(group=groups())
def test_s17_every_partition_has_exactly_one_member_that_reads_its_topic(
    assignor: Assignor, group: tuple[dict[str, Sequence[str]], dict[str, int], Assignment]
) -> None:
    members, counts, present = group
    assignment = POLICIES[assignor](members, counts, present)
    assert list(assignment) == list(members)
    read = {topic for topics in members.values() for topic in topics}
    expected = {(topic, n) for topic in read for n in range(counts[topic])}
    found = pairs(assignment)
    assert len(found) == len(expected)
    assert {(topic, n) for topic, n, _ in found} == expected
    assert all(topic in members[member] for topic, _, member in found)
    assert all(list(ns) == sorted(ns) and ns for share in assignment.values() for ns in share.values())


@all_assignors
@given(group=groups())
def test_members_with_the_same_topics_differ_by_one_at_most(
    assignor: Assignor, group: tuple[dict[str, Sequence[str]], dict[str, int], Assignment]
) -> None:
    members, counts, present = group
    assignment = POLICIES[assignor](members, counts, present)
    for topics in {frozenset(topics) for topics in members.values()}:
        loads = [load(assignment, member) for member in members if frozenset(members[member]) == topics]
        assert max(loads) - min(loads) <= 1


@all_assignors
@given(group=groups())
def test_the_same_input_gives_the_same_shares(
    assignor: Assignor, group: tuple[dict[str, Sequence[str]], dict[str, int], Assignment]
) -> None:
    members, counts, present = group
    again = ({m: list(reversed(t)) for m, t in members.items()}, dict(reversed(counts.items())), dict(present))
    assert POLICIES[assignor](members, counts, present) == POLICIES[assignor](*again)


@sticky_assignors
@given(data=st.data(), members=IDS.filter(bool), count=st.integers(0, 40))
def test_s18_sticky_moves_no_more_than_even_shares_need(
    assignor: Assignor, data: st.DataObject, members: list[str], count: int
) -> None:
    """Only the surplus over each one's share moves, and the larger shares are for those who have more already."""
    present = data.draw(presents({"orders": count}, members))
    assignment = join(assignor, members, count, present)
    held = {m: [n for n in present.get(m, {}).get("orders", []) if n < count] for m in members}
    moved = sum(len(set(held[m]) - set(assignment[m].get("orders", []))) for m in members)
    each, over = divmod(count, len(members))
    shares = [each + 1] * over + [each] * (len(members) - over)
    owned = sorted(map(len, held.values()), reverse=True)
    assert moved == sum(max(0, have - share) for have, share in zip(owned, shares, strict=True))


@sticky_assignors
@given(group=groups())
def test_s18_sticky_changes_nothing_the_second_time(
    assignor: Assignor, group: tuple[dict[str, Sequence[str]], dict[str, int], Assignment]
) -> None:
    members, counts, present = group
    assignment = POLICIES[assignor](members, counts, present)
    assert POLICIES[assignor](members, counts, assignment) == assignment


def test_range_gives_what_people_expect() -> None:
    """Two members; a third one joins; the second one crashes."""
    assert shown(join(Assignor.RANGE, "AB", 6)) == {"A": [0, 1, 2], "B": [3, 4, 5]}
    assert shown(join(Assignor.RANGE, "ABC", 6)) == {"A": [0, 1], "B": [2, 3], "C": [4, 5]}
    assert shown(join(Assignor.RANGE, "AC", 6)) == {"A": [0, 1, 2], "C": [3, 4, 5]}


@sticky_assignors
def test_sticky_moves_less_than_range_does(assignor: Assignor) -> None:
    """Here P3 stays with B when C joins, and A keeps P0 and P1, C what it had, when B crashes."""
    alone = join(assignor, "A", 6)
    two = join(assignor, "AB", 6, alone)
    assert shown(two) == {"A": [0, 1, 2], "B": [3, 4, 5]}
    three = join(assignor, "ABC", 6, two)
    assert shown(three) == {"A": [0, 1], "B": [3, 4], "C": [2, 5]}
    assert shown(join(assignor, "AC", 6, three)) == {"A": [0, 1, 3], "C": [2, 4, 5]}


def test_round_robin_deals_one_by_one() -> None:
    assert shown(join(Assignor.ROUND_ROBIN, "AB", 5)) == {"A": [0, 2, 4], "B": [1, 3]}


@all_assignors
def test_more_members_than_partitions_leave_the_youngest_idle(assignor: Assignor) -> None:
    present: Assignment = {}
    for size in range(1, 9):
        present = join(assignor, [f"m{n}" for n in range(size)], 6, present)
    assert idle(present) == ["m6", "m7"]
    assert all(load(present, f"m{n}") == 1 for n in range(6))


@all_assignors
def test_nobody_and_nothing(assignor: Assignor) -> None:
    assert POLICIES[assignor]({}, {"orders": 3}, {"gone": {"orders": [0, 1, 2]}}) == {}
    assert POLICIES[assignor]({"A": ["orders"]}, {}, {"A": {"orders": [0]}}) == {"A": {}}


@all_assignors
def test_what_is_left_over_of_many_topics_does_not_all_go_to_the_first(assignor: Assignor) -> None:
    topics = [f"t{n}" for n in range(10)]
    assignment = POLICIES[assignor](dict.fromkeys("AB", topics), dict.fromkeys(topics, 3), {})
    assert load(assignment, "A") == load(assignment, "B") == 15


@sticky_assignors
def test_each_topic_is_spread_too(assignor: Assignor) -> None:
    counts = {"clicks": 6, "orders": 6}
    alone = POLICIES[assignor]({"A": TOPICS}, counts, {})
    assignment = POLICIES[assignor](dict.fromkeys("AB", TOPICS), counts, alone)
    assert assignment == {
        "A": {"clicks": [0, 1, 2], "orders": [0, 1, 2]},
        "B": {"clicks": [3, 4, 5], "orders": [3, 4, 5]},
    }


@all_assignors
def test_who_alone_reads_a_topic_gets_less_of_the_others(assignor: Assignor) -> None:
    members = {"A": ["clicks", "orders"], "B": ["orders"]}
    assignment = POLICIES[assignor](members, {"clicks": 2, "orders": 4}, {})
    assert assignment["A"]["clicks"] == [0, 1]
    if assignor is not Assignor.RANGE:
        assert load(assignment, "A") == load(assignment, "B") == 3


@all_assignors
@pytest.mark.parametrize("topics", [1, 30])
def test_900_partitions_and_64_members_take_less_than_10_ms(assignor: Assignor, topics: int) -> None:
    names = [f"t{n}" for n in range(topics)]
    counts = dict.fromkeys(names, 900 // topics)
    members = {f"m{n}": names for n in range(63)}
    policy = POLICIES[assignor]
    present = policy(members, counts, {})
    members["late"] = names

    def took(before: Assignment) -> float:
        start = time.thread_time()
        policy(members, counts, before)
        return time.thread_time() - start

    # CPU time of this thread, the best of several: other work on the machine must not count.
    assert min(took({}) for _ in range(20)) < 0.010
    assert min(took(present) for _ in range(20)) < 0.010


def test_all_joining_the_first_at_once_takes_no_longer_than_a_write() -> None:
    """64 members over one who has all: the most that can move."""
    policy, members = POLICIES[Assignor.COOPERATIVE], {f"m{n}": ["orders"] for n in range(65)}
    present = {"m0": {"orders": range(900)}}
    times = []
    for _ in range(10):
        start = time.thread_time()
        policy(members, {"orders": 900}, present)
        times.append(time.thread_time() - start)
    assert min(times) < 0.030
