"""Document 001, consumer groups (GoQueue), first half: members, assignment, rebalancing, heartbeats, over HTTP.

If a diagram shows an assignment, the test names the assignor that produces it: `docs/differences.md`. The second half
(patterns, offsets, scaling, monitoring and the example program) is `test_document_goqueue_progress.py`.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections import defaultdict
from typing import Any

import pytest

from tests.acceptance.documents import (
    SHORT_MS,
    Beating,
    Installation,
    Leased,
    fresh,
    in_background,
    until_taken,
)
from tests.kit.waiting import eventually

SESSION_MS = 1500
"""A session that a test lets expire."""
A, B, C = "consumer-a", "consumer-b", "consumer-c"


def _sizes(assigned: dict[str, list[int]]) -> list[int]:
    return sorted(len(partitions) for partitions in assigned.values())


def _all(assigned: dict[str, list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(assigned.values()))


# Consumer groups ------------------------------------------------------------------------------------------------------


def test_the_first_diagram_three_partitions_for_two_consumers(lake: Installation) -> None:
    """S17: each partition belongs to exactly one consumer of the group; of three partitions, one of two consumers gets
    one.
    """
    topic, group = lake.topic(3), fresh("order-service")
    lake.join(group, A, topic)
    lake.join(group, B, topic)
    assigned = lake.assigned(group, topic)
    assert (_sizes(assigned), _all(assigned)) == ([1, 2], [0, 1, 2])


def test_load_is_balanced(lake: Installation) -> None:
    """Property 1: partitions are spread over the consumers, and each is served from its own partitions first."""
    topic, group = lake.topic(4), fresh("g")
    joined = {member: lake.join(group, member, topic, start_from="earliest") for member in (A, B)}
    for partition in range(4):
        lake.publish(topic, range(5), partition=partition)
    assigned = lake.assigned(group, topic)
    for member, own in assigned.items():
        generation = lake.heartbeat(group, joined[member])["generation"]
        taken = lake.hold(topic, group, member, 10, member_id=member, generation=generation)
        assert {each.partition for each in taken} == set(own)


def test_a_dead_consumers_partitions_are_reassigned(lake: Installation) -> None:
    """Property 2, L5: when a consumer dies, its partitions go to others, and its messages are delivered again."""
    topic, group = lake.topic(2), fresh("g")
    lake.join(group, A, topic, session_ms=SHORT_MS, start_from="earliest")
    with Beating(lake, group, lake.join(group, B, topic)):
        for partition in range(2):
            lake.publish(topic, ["work"], partition=partition)
        lake.consume(topic, group, A, 2, lease_ms=SHORT_MS)
        eventually(lambda: lake.assigned(group, topic) == {B: [0, 1]})
    taken = [until_taken(lake, topic, group, B)]
    lake.ack(taken[0])
    taken.append(until_taken(lake, topic, group, B))
    assert {each.partition for each in taken} == {0, 1}
    assert {each.message["delivery"] for each in taken} == {2}


def test_a_message_goes_to_one_consumer_of_the_group(lake: Installation) -> None:
    """Property 3: each message is delivered once within the group."""
    topic, group = lake.topic(3), fresh("g")
    for member in (A, B, C):
        lake.join(group, member, topic, start_from="earliest")
    lake.publish(topic, range(30))
    found = [each.value for member in (A, B, C) for each in lake.drain(topic, group, member, member_id=member)]
    assert sorted(found) == list(range(30))


def test_groups_progress_independently(lake: Installation) -> None:
    """Property 4, S19: each group has its own progress."""
    topic, one, other = lake.topic(), fresh("one"), fresh("other")
    lake.publish(topic, range(3))
    lake.drain(topic, one, start_from="earliest")
    lake.begin(topic, other)
    assert (lake.committed(one, topic), lake.committed(other, topic)) == ([3], [0])


# Creating a group: the document's example ----------------------------------------------------------------------------


def test_the_join_example(lake: Installation) -> None:
    """A group is created implicitly when a consumer joins; the response has the member, generation 1 and its
    partitions.
    """
    lake.post("/v1/topics", {"name": "orders", "partitions": 2})
    body = '{ "member_id": "consumer-1", "topics": ["orders"], "session_timeout_ms": 30000 }'
    path = f"{lake.url}/groups/order-service/join"
    joined = _curl("-X", "POST", path, "-H", "Content-Type: application/json", "-d", body)
    assert (joined.pop("heartbeat_interval_ms"), joined.pop("skipped_at_start")) == (10_000, {"orders": 0})
    assert joined.pop("settings")["order"] == "key"
    assert joined == {"member_id": "consumer-1", "generation": 1, "assigned_partitions": {"orders": [0, 1]}}
    assert "order-service" in [group["group_id"] for group in _curl(f"{lake.url}/groups")["groups"]]
    described = _curl(f"{lake.url}/groups/order-service")
    assert (described["group_id"], described["state"], described["generation"]) == ("order-service", "stable", 1)
    assert [member["member_id"] for member in described["members"]] == ["consumer-1"]


def _curl(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(["curl", "-sS", "--fail-with-body", *arguments], capture_output=True, timeout=30, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_status_examples(lake: Installation) -> None:
    """Groups can be listed; its details are id, state, generation, and members with host and partitions."""
    topic, group = lake.topic(6), fresh("order-service")
    lake.join(group, "consumer-1", topic)
    generation = lake.join(group, "consumer-2", topic)["generation"]
    assert group in [each["group_id"] for each in lake.get("/groups")["groups"]]
    described = lake.get(f"/groups/{group}")
    documented = {name: described[name] for name in ("group_id", "state", "generation")}
    assert documented == {"group_id": group, "state": "stable", "generation": generation}
    names = ("member_id", "client_host", "assigned_partitions")
    members = [{name: member[name] for name in names} for member in described["members"]]
    assert members == [
        {"member_id": "consumer-1", "client_host": "127.0.0.1", "assigned_partitions": {topic: [0, 1, 2]}},
        {"member_id": "consumer-2", "client_host": "127.0.0.1", "assigned_partitions": {topic: [3, 4, 5]}},
    ]


def test_a_group_without_members_is_empty(lake: Installation) -> None:
    """The state in a group's details when it has no members."""
    topic, group = lake.topic(), fresh("g")
    lake.join(group, A, topic)
    lake.leave(group, A)
    described = lake.describe(group)
    assert (described["state"], described["members"]) == ("empty", [])


# Assignment -----------------------------------------------------------------------------------------------------------


def test_the_assignment_diagram_by_range(lake: Installation) -> None:
    """A and B have three of six partitions each; with C all have two neighbours; if B crashes, A and C have three."""
    topic, group = lake.topic(6), fresh("g")
    lake.join(group, A, topic, assignor="range")
    lake.join(group, B, topic)
    assert lake.assigned(group, topic) == {A: [0, 1, 2], B: [3, 4, 5]}
    lake.join(group, C, topic)
    assert lake.assigned(group, topic) == {A: [0, 1], B: [2, 3], C: [4, 5]}
    lake.join(group, B, topic, session_ms=SHORT_MS)
    eventually(lambda: lake.assigned(group, topic) == {A: [0, 1, 2], C: [3, 4, 5]})


def test_the_assignment_diagram_by_default_moves_less(lake: Installation) -> None:
    """The same with the default, sticky assignor: equal shares, and no member loses more than necessary."""
    topic, group = lake.topic(6), fresh("g")
    lake.join(group, A, topic)
    lake.join(group, B, topic)
    before = lake.assigned(group, topic)
    assert before == {A: [0, 1, 2], B: [3, 4, 5]}
    lake.join(group, C, topic)
    between = lake.assigned(group, topic)
    assert _sizes(between) == [2, 2, 2]
    assert all(set(between[member]) < set(before[member]) for member in (A, B))
    lake.leave(group, B)
    after = lake.assigned(group, topic)
    assert _sizes(after) == [3, 3]
    assert all(set(between[member]) < set(after[member]) for member in (A, C))


def test_adding_a_consumer(lake: Installation) -> None:
    """One consumer has all six partitions; another one triggers a rebalance, and each has three."""
    topic, group = lake.topic(6), fresh("g")
    assert lake.join(group, A, topic)["assigned_partitions"] == {topic: [0, 1, 2, 3, 4, 5]}
    rebalances = lake.describe(group)["rebalances"]
    assert lake.join(group, B, topic)["assigned_partitions"] == {topic: [3, 4, 5]}
    assert lake.assigned(group, topic) == {A: [0, 1, 2], B: [3, 4, 5]}
    assert lake.describe(group)["rebalances"] == rebalances + 1


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [
        ("range", {A: [0, 1, 2], B: [3, 4, 5]}, {A: [0, 1], B: [2, 3], C: [4, 5]}),
        ("round-robin", {A: [0, 2, 4], B: [1, 3, 5]}, {A: [0, 3], B: [1, 4], C: [2, 5]}),
        ("sticky", {A: [0, 1, 2], B: [3, 4, 5]}, {A: [0, 1], B: [3, 4], C: [2, 5]}),
        ("cooperative-sticky", {A: [0, 1, 2], B: [3, 4, 5]}, {A: [0, 1], B: [3, 4], C: [2, 5]}),
    ],
)
def test_the_strategies(lake: Installation, assignor: str, first: Any, second: Any) -> None:
    """Range assigns adjacent partitions, round-robin alternates, sticky and cooperative move as few as possible."""
    topic, group = lake.topic(6), fresh("g")
    for member in (A, B):
        lake.join(group, member, topic, assignor=assignor)
    assert lake.assigned(group, topic) == first
    lake.join(group, C, topic)
    assert lake.assigned(group, topic) == second


def test_cooperative_sticky_is_the_default(lake: Installation) -> None:
    """The default assignor is cooperative-sticky."""
    topic, group = lake.topic(), fresh("g")
    lake.join(group, A, topic)
    assert lake.describe(group)["settings"]["assignor"] == "cooperative-sticky"


# Rebalancing ----------------------------------------------------------------------------------------------------------


def test_a_join_and_a_leave_trigger_a_rebalance(lake: Installation) -> None:
    """Triggers 1 and 2: a consumer joins, a consumer leaves cleanly. The generation increases each time."""
    topic, group = lake.topic(2), fresh("g")
    first = lake.join(group, A, topic)["generation"]
    second = lake.join(group, B, topic)["generation"]
    assert lake.assigned(group, topic) == {A: [0], B: [1]}
    lake.leave(group, B)
    assert lake.assigned(group, topic) == {A: [0, 1]}
    assert first < second < lake.describe(group)["generation"]


def test_a_crash_triggers_a_rebalance_after_the_session(lake: Installation) -> None:
    """Trigger 3: no heartbeat for the session timeout means dead, but not earlier, and the survivor learns of it."""
    topic, group = lake.topic(2), fresh("g")
    joined = lake.join(group, A, topic)
    lake.join(group, B, topic)
    assert lake.assigned(group, topic) == {A: [0], B: [1]}
    before = time.monotonic()
    crashed = lake.join(group, B, topic, session_ms=SESSION_MS)
    beats: list[dict[str, Any]] = []

    def has_all() -> bool:
        beats.append(lake.heartbeat(group, joined))
        return bool(beats[-1]["assigned_partitions"] == {topic: [0, 1]})

    eventually(has_all)
    assert time.monotonic() - before >= SESSION_MS / 1000
    assert beats[-1]["generation"] > joined["generation"]
    assert lake.assigned(group, topic) == {A: [0, 1]}
    late = {"member_id": B, "generation": crashed["generation"]}
    assert lake.call("POST", f"/groups/{group}/heartbeat", late).code == "unknown_member"


def test_new_partitions_trigger_a_rebalance(lake: Installation) -> None:
    """Trigger 4: partitions are added to a topic, and assigned without a new member."""
    topic, group = lake.topic(2), fresh("g")
    joined = [lake.join(group, member, topic) for member in (A, B)]
    lake.ok("PATCH", f"/v1/topics/{topic}", {"partitions": 4})

    def shared() -> bool:
        for member in joined:
            lake.heartbeat(group, member)
        return _sizes(lake.assigned(group, topic)) == [2, 2]

    eventually(shared)
    assert _all(lake.assigned(group, topic)) == [0, 1, 2, 3]


def test_unaffected_partitions_go_on_during_a_rebalance(lake: Installation) -> None:
    """S18: no full stop. A keeps P0 and works on it while P1 moves to B; its open lease in P1 stays valid."""
    topic, group, count = lake.topic(2), fresh("g"), 9
    joined = lake.join(group, A, topic, start_from="earliest")
    for partition in range(2):
        lake.publish(topic, range(count), partition=partition)
    old = {"member_id": A, "generation": joined["generation"]}
    held: dict[int, list[Leased]] = defaultdict(list)
    while len(held) < 2:
        for leased in lake.consume(topic, group, A, 1, wait_ms=1000, **old):
            held[leased.partition].append(leased)
    other = lake.join(group, B, topic)
    now = lake.heartbeat(group, joined)
    assert now["assigned_partitions"] == {topic: [0]}
    # The lease in P1 is still open: the rebalance is not over, and A works on P0.
    mine = {"member_id": A, "generation": now["generation"]}
    for leased in held[0]:
        lake.ack(leased)
    for _ in range(count - len(held[0])):
        (leased,) = lake.consume(topic, group, A, **mine)
        assert leased.partition == 0
        lake.ack(leased)
    assert lake.progress(group, topic)[0]["committed"] == count
    assert lake.progress(group, topic)[1]["leased"] == len(held[1])
    for leased in held[1]:
        lake.ack(leased)
    beat = lake.heartbeat(group, other)
    taken = lake.consume(topic, group, B, member_id=B, generation=beat["generation"], wait_ms=20_000)
    assert [leased.partition for leased in taken] == [1]
    assert taken[0].offset == len(held[1])


def test_a_cursor_group_hands_over_step_by_step(lake: Installation) -> None:
    """Incremental: B gets P1 only after A has acknowledged the revocation; A keeps P0 all the time."""
    topic, group = lake.topic(2), fresh("g")
    first = lake.join(group, A, topic, kind="cursor", start_from="earliest")
    assert first["assigned_partitions"] == {topic: [0, 1]}
    second = lake.join(group, B, topic)
    assert second["assigned_partitions"] == {}
    assert lake.describe(group)["state"] == "rebalancing"
    told = lake.heartbeat(group, first)
    assert (told["assigned_partitions"], told["revoked_partitions"]) == ({topic: [0]}, {topic: [1]})
    lake.heartbeat(group, told)
    assert lake.heartbeat(group, second)["assigned_partitions"] == {topic: [1]}
    described = lake.describe(group)
    assert described["state"] == "stable"
    assert described["rebalancing_ms"] > 0


def test_an_old_generation_is_fenced(lake: Installation) -> None:
    """S17: a commit with an old generation, for a partition that has moved, gets 409."""
    topic, group = lake.topic(1), fresh("g")
    lake.publish(topic, range(5))
    old = lake.join(group, A, topic, kind="cursor", start_from="earliest")
    lake.leave(group, A)
    new = lake.join(group, B, topic)
    commit = {"topic": topic, "positions": [{"partition": 0, "offset": 2}]}
    of_b = {**commit, "member_id": B, "generation": new["generation"]}
    lake.post(f"/v1/groups/{group}/positions", of_b)
    stale = lake.call("POST", f"/v1/groups/{group}/positions", {**commit, "generation": old["generation"]})
    assert (stale.status, stale.code) == (409, "stale_generation")
    assert lake.committed(group, topic) == [2]


# Heartbeats -----------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_consumer_alive(lake: Installation) -> None:
    """Periodic heartbeats keep a consumer alive through many session timeouts, without a rebalance."""
    topic, group = lake.topic(), fresh("g")
    with Beating(lake, group, lake.join(group, A, topic, session_ms=SESSION_MS)):
        ended = in_background(lake.consume, topic, fresh("other"), "w", wait_ms=3 * SESSION_MS, start_from="earliest")
        assert ended.result(30) == []
        described = lake.describe(group)
    assert [member["member_id"] for member in described["members"]] == [A]
    assert described["generation"] == 1


def test_the_defaults_of_session_and_heartbeat(lake: Installation) -> None:
    """A consumer is dead after 30 s without a heartbeat, and sends one every 10 s."""
    topic, group = lake.topic(), fresh("g")
    joined = lake.post(f"/groups/{group}/join", {"member_id": A, "topics": [topic]})
    assert joined["heartbeat_interval_ms"] == 10_000
    assert lake.describe(group)["members"][0]["session_timeout_ms"] == 30_000


def test_the_heartbeat_interval_is_at_most_a_third_of_the_session(lake: Installation) -> None:
    """Heartbeats should be sent at least three times per session: the server returns the interval."""
    topic, group = lake.topic(), fresh("g")
    assert lake.join(group, A, topic, session_ms=3000)["heartbeat_interval_ms"] <= 1000
    assert lake.join(group, B, topic, session_ms=90_000)["heartbeat_interval_ms"] <= 30_000


@pytest.mark.parametrize("session_ms", [1, 10_000_000])
def test_a_tiny_or_huge_session_is_refused(lake: Installation, session_ms: int) -> None:
    """The warning: a short session causes needless rebalances, a long one hides failures. Both are refused."""
    body = {"member_id": A, "topics": [lake.topic()], "session_timeout_ms": session_ms}
    assert lake.call("POST", f"/groups/{fresh('g')}/join", body).status == 422
