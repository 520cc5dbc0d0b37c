"""Document 000, the consumer model of topics, groups and owners (DriftQ-Core): each of its statements, over HTTP.

A topic is a stream, a group a subscription, an owner the identity of a worker.
"""

from __future__ import annotations

import time

import pytest

from tests.acceptance.documents import SHORT_MS, Installation, fresh, taken_after, until_taken

# Topics and partitions ------------------------------------------------------------------------------------------------


def test_a_topic_is_a_named_stream_that_is_written_and_read(lake: Installation) -> None:
    """Producers write messages to a topic, and consumers read them from it."""
    topic = lake.topic()
    lake.publish(topic, ["one", "two"])
    read = lake.get(f"/v1/topics/{topic}/partitions/0/messages")["messages"]
    leased = lake.drain(topic, fresh("readers"), start_from="earliest")
    assert [message["value"] for message in read] == ["one", "two"]
    assert [each.value for each in leased] == ["one", "two"]


def test_each_partition_is_a_log_with_offsets_of_its_own(lake: Installation) -> None:
    """Several partitions are several parallel logs, each with the offsets 0, 1, 2, 3, …"""
    topic = lake.topic(3)
    for partition in range(3):
        places = lake.publish(topic, range(4), partition=partition)
        assert [(place["partition"], place["offset"]) for place in places] == [(partition, n) for n in range(4)]


def test_messages_of_a_partition_are_read_in_order(lake: Installation) -> None:
    """Consumers read each partition in order; there is no order across the topic."""
    topic, group = lake.topic(2), fresh("readers")
    for number in range(20):
        lake.publish(topic, [number], partition=number % 2)
    leased = lake.drain(topic, group, start_from="earliest")
    for partition in range(2):
        own = [each.value for each in leased if each.partition == partition]
        assert own == list(range(partition, 20, 2))


def test_partitions_scale_parallel_reading(lake: Installation) -> None:
    """Partitions provide throughput and parallelism: open messages of one owner block no other partition."""
    topic, group = lake.topic(2), fresh("readers")
    lake.publish(topic, ["a"], partition=0, key="k")
    lake.publish(topic, ["b"], partition=1, key="k")
    first = lake.consume(topic, group, "w1", start_from="earliest")
    second = lake.consume(topic, group, "w2")
    assert {each.partition for each in first + second} == {0, 1}


# Groups ---------------------------------------------------------------------------------------------------------------


def test_the_example_of_two_groups_at_10_and_72(lake: Installation) -> None:
    """Messages 0..100 of one partition: group g1 is at offset 10 while g2 is at 72."""
    topic, g1, g2 = lake.topic(), fresh("g1"), fresh("g2")
    lake.publish(topic, range(101))
    for group, count in ((g1, 10), (g2, 72)):
        taken = lake.consume(topic, group, "w", count, start_from="earliest")
        assert [each.value for each in taken] == list(range(count))
        offsets = [[0, count - 1]]
        lake.post("/v1/ack", {"topic": topic, "group": group, "owner": "w", "partition": 0, "offsets": offsets})
    assert (lake.committed(g1, topic), lake.committed(g2, topic)) == ([10], [72])
    assert (lake.consume(topic, g1, "w")[0].value, lake.consume(topic, g2, "w")[0].value) == (10, 72)


def test_a_group_has_a_committed_offset_in_each_partition(lake: Installation) -> None:
    """Each group keeps its own committed offset per partition."""
    topic, group = lake.topic(2), fresh("readers")
    lake.publish(topic, range(5), partition=0)
    lake.publish(topic, range(3), partition=1)
    lake.hold(topic, group, "w", 8, start_from="earliest")
    for partition, through in ((0, 3), (1, 0)):
        body = {"topic": topic, "group": group, "owner": "w", "partition": partition, "offset": through}
        lake.post("/v1/ack-cumulative", body)
    assert lake.committed(group, topic) == [4, 1]


def test_groups_read_at_their_own_pace(lake: Installation) -> None:
    """Independent workflows: every group sees the whole stream, independent of what others have read."""
    topic, fast, slow = lake.topic(), fresh("fast"), fresh("slow")
    lake.publish(topic, ["a", "b", "c"])
    assert [each.value for each in lake.drain(topic, fast, start_from="earliest")] == ["a", "b", "c"]
    assert lake.consume(topic, slow, "w", start_from="earliest")[0].value == "a"
    assert lake.total(fast, topic, "lag") == 0
    assert lake.total(slow, topic, "lag") == 3


# Owners ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/consume", "/v1/ack", "/v1/nack", "/v1/extend", "/v1/discard"])
def test_an_owner_is_required(lake: Installation, path: str) -> None:
    """Consume requires an owner, and so do its answers."""
    body = {"topic": lake.topic(), "group": fresh("g")}
    answer = lake.call("POST", path, body if path == "/v1/consume" else {**body, "partition": 0, "offset": 0})
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert "owner" in answer.body["detail"]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend", "discard", "ack-cumulative"])
def test_an_answer_of_another_owner_is_a_conflict(lake: Installation, verb: str) -> None:
    """S9: ack and nack must use the owner that consumed; another owner gets 409, and nothing changes."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    (leased,) = lake.consume(topic, group, "w1", start_from="earliest")
    refused = lake.call("POST", f"/v1/{verb}", leased.naming(owner="w2"))
    assert (refused.status, refused.code) == (409, "not_owner")
    with_token = lake.call("POST", f"/v1/{verb}", leased.naming(owner="w2", token=leased.token))
    assert (with_token.status, with_token.code) == (409, "not_owner")
    assert lake.progress(group, topic)[0]["leased"] == 1
    lake.ack(leased)
    assert lake.committed(group, topic) == [1]


def test_the_minimal_model_topic_group_and_owner_suffice(lake: Installation) -> None:
    """Consume by (topic, group, owner) gives a leased message; the same three ack it, and no other owner can."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    (leased,) = lake.consume(topic, group, "worker-1", start_from="earliest")
    assert (leased.value, leased.partition, leased.offset) == ("work", 0, 0)
    body = {"topic": topic, "group": group, "offset": leased.offset}
    refused = lake.call("POST", "/v1/ack", {**body, "owner": "worker-2"})
    assert refused.status == 409
    assert (lake.committed(group, topic), lake.total(group, topic, "leased")) == ([0], 1)
    assert lake.call("POST", "/v1/ack", {**body, "owner": "worker-1"}).status == 204
    assert (lake.committed(group, topic), lake.total(group, topic, "leased")) == ([1], 0)
    assert lake.consume(topic, group, "worker-2") == []


def test_the_minimal_model_with_a_nack(lake: Installation) -> None:
    """The consumer may nack instead, with the same three: the message is delivered again."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    lake.consume(topic, group, "worker-1", start_from="earliest")
    body = {"topic": topic, "group": group, "owner": "worker-1", "offset": 0, "delay_ms": 0}
    assert lake.call("POST", "/v1/nack", body).status == 204
    again = until_taken(lake, topic, group, "worker-2")
    assert (again.value, again.message["delivery"], again.message["failures"]) == ("work", 2, 1)


def test_two_owners_never_hold_the_same_message(lake: Installation) -> None:
    """S8: without owners and leases, two consumers could process a message at the same time; with them, they cannot."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(10))
    first = lake.consume(topic, group, "w1", 6, start_from="earliest")
    second = lake.consume(topic, group, "w2", 10)
    assert {each.offset for each in first} | {each.offset for each in second} == set(range(10))
    assert not {each.offset for each in first} & {each.offset for each in second}
    assert lake.consume(topic, group, "w3", 10) == []


def test_a_crash_is_no_silent_double_processing(lake: Installation) -> None:
    """S8, S9: the next owner gets a dead owner's message after the lease; if the first resumes, its ack gets 409."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    began = time.monotonic()
    (lost,) = lake.consume(topic, group, "zombie", start_from="earliest", lease_ms=SHORT_MS)
    taken = taken_after(lake, began, SHORT_MS, topic, group, "next")
    assert (taken.offset, taken.message["delivery"]) == (lost.offset, 2)
    assert taken.token > lost.token
    late = lake.call("POST", "/v1/ack", lost.naming(token=lost.token))
    assert (late.status, late.code) == (409, "lease_lost")
    lake.ack(taken)
    assert lake.committed(group, topic) == [1]


def test_an_owner_cannot_ack_what_it_never_consumed(lake: Installation) -> None:
    """No consumer acks work that it does not own: not before it is leased, and not in another group."""
    topic, group, other = lake.topic(), fresh("g"), fresh("other")
    lake.publish(topic, ["work"])
    lake.begin(topic, other)
    lake.consume(topic, group, "w", start_from="earliest")
    elsewhere = {"topic": topic, "group": other, "owner": "w", "offset": 0}
    assert lake.call("POST", "/v1/ack", elsewhere).status == 409
    assert lake.call("POST", "/v1/ack", {**elsewhere, "group": group, "offset": 5}).status == 409


# Common combinations --------------------------------------------------------------------------------------------------


def test_the_same_group_with_different_owners_scales(lake: Installation) -> None:
    """Scale processing: workers of one group, each with its own owner, share the messages."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(9))
    shares = [lake.consume(topic, group, owner, 3, start_from="earliest") for owner in ("w1", "w2", "w3")]
    assert [[each.value for each in share] for share in shares] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_different_groups_have_separate_offsets(lake: Installation) -> None:
    """Independent workflows: an ack in one group does not count in another, even by the same owner."""
    topic, g1, g2 = lake.topic(), fresh("g1"), fresh("g2")
    lake.publish(topic, ["work"])
    (first,) = lake.consume(topic, g1, "w", start_from="earliest")
    (second,) = lake.consume(topic, g2, "w", start_from="earliest")
    lake.ack(first)
    assert (lake.committed(g1, topic), lake.committed(g2, topic)) == ([1], [0])
    lake.ack(second)
    assert lake.committed(g2, topic) == [1]


def test_a_stable_owner_is_known_on_every_server(lake: Installation) -> None:
    """Strict safety: an owner that keeps its name can ack its messages over any connection and any server."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(4))
    taken = lake.consume(topic, group, "host-7:worker-1", 4, start_from="earliest")
    # Each call goes to the other server, over its own connection.
    for leased in taken:
        lake.post("/v1/ack", leased.naming())
    assert lake.committed(group, topic) == [4]
