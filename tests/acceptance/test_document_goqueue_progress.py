"""Document 001, consumer groups (GoQueue), second half: patterns, offsets, scaling, monitoring, an example."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.client.consumer.options import ConsumerOptions, ConsumerTopic
from lakelog.client.publishing.codec import Codec
from tests.acceptance.client_kit import ThreadServer
from tests.acceptance.documents import Installation, Seen, connected, fresh, in_background, until_taken
from tests.kit.waiting import eventually

# Patterns -------------------------------------------------------------------------------------------------------------


def test_competing_consumers(lake: Installation) -> None:
    """The default: M1 to M4 and three consumers, each message goes to one of them."""
    topic, group = lake.topic(), fresh("orders")
    lake.publish(topic, ["M1", "M2", "M3", "M4"])
    taken = [lake.consume(topic, group, owner, start_from="earliest") for owner in ("A", "B", "C")]
    assert [each.value for (each,) in taken] == ["M1", "M2", "M3"]
    assert lake.consume(topic, group, "A")[0].value == "M4"


def test_fan_out_to_several_groups(lake: Installation) -> None:
    """Every group gets all messages: analytics, billing and logs."""
    topic = lake.topic(2)
    lake.publish(topic, ["M1", "M2", "M3", "M4"])
    for group in ("analytics", "billing", "logs"):
        values = sorted(each.value for each in lake.drain(topic, fresh(group), start_from="earliest"))
        assert values == ["M1", "M2", "M3", "M4"]


# Offsets --------------------------------------------------------------------------------------------------------------


def test_the_offset_diagram(lake: Installation) -> None:
    """Partition 0 with offsets 0 to 7: analytics is at 3 and billing at 6, independently."""
    topic, groups = lake.topic(), {fresh("analytics"): 3, fresh("billing"): 6}
    lake.publish(topic, range(8))
    for group, count in groups.items():
        for leased in lake.consume(topic, group, "w", count, start_from="earliest"):
            lake.ack(leased)
    assert [lake.committed(group, topic) for group in groups] == [[3], [6]]
    assert [lake.progress(group, topic)[0]["high_watermark"] for group in groups] == [8, 8]
    assert [lake.total(group, topic, "lag") for group in groups] == [5, 2]


def test_commit_after_processing_each(lake: Installation) -> None:
    """Manual commit: an ack after each message, and the committed offset follows."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(3))
    for number, leased in enumerate(lake.consume(topic, group, "w", 3, start_from="earliest")):
        lake.ack(leased)
        assert lake.committed(group, topic) == [number + 1]


@pytest.mark.parametrize("verb", ["ack", "ack-cumulative"])
def test_commit_of_a_whole_batch(lake: Installation, verb: str) -> None:
    """Batch commit: all at once, by offsets or by the last offset."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(10))
    lake.consume(topic, group, "w", 10, start_from="earliest")
    what: dict[str, Any] = {"offsets": [[0, 9]]} if verb == "ack" else {"offset": 9}
    lake.post(f"/v1/{verb}", {"topic": topic, "group": group, "owner": "w", **what})
    assert lake.committed(group, topic) == [10]


def test_the_committed_offset_passes_no_hole(lake: Installation) -> None:
    """S16: at least once, even if acks arrive out of order. Every message below the committed offset is finished."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(3))
    taken = lake.consume(topic, group, "w", 3, start_from="earliest")
    lake.ack(taken[2])
    assert lake.committed(group, topic) == [0]
    lake.ack(taken[0])
    assert lake.committed(group, topic) == [1]
    lake.ack(taken[1])
    assert lake.committed(group, topic) == [3]


def test_positions_are_committed_in_a_cursor_group(lake: Installation) -> None:
    """The document's own style, a position per partition, is a cursor group."""
    topic, group = lake.topic(2), fresh("g")
    lake.publish(topic, range(6), partition=1)
    joined = lake.join(group, "w", topic, kind="cursor", start_from="earliest")
    commit = {"topic": topic, "positions": [{"partition": 1, "offset": 4}]}
    lake.post(f"/v1/groups/{group}/positions", {**commit, "member_id": "w", "generation": joined["generation"]})
    positions = lake.get(f"/v1/groups/{group}/positions?topic={topic}")["positions"]
    assert {each["partition"]: each["offset"] for each in positions} == {0: 0, 1: 4}
    assert lake.total(group, topic, "lag") == 2


def test_commits_happen_every_five_seconds_by_default() -> None:
    """A consumer of a cursor group commits at an interval, and the interval is 5 s."""
    for client in (lakelog.Lakelog, lakelog.AsyncLakelog):
        parameters = inspect.signature(client.consumer).parameters
        assert (parameters["commit"].default, parameters["commit_interval"].default) == (None, 5.0)
    options = ConsumerOptions(topics=(ConsumerTopic(name="orders", codec=Codec(None)),), group="g", kind="cursor")
    assert (options.commit_mode, options.commit_seconds) == ("interval", 5.0)


# Where a group without an offset begins -------------------------------------------------------------------------------


def test_the_policy_earliest(lake: Installation) -> None:
    """Start from the beginning: all history is processed."""
    topic = lake.topic()
    lake.publish(topic, ["old"])
    assert [each.value for each in lake.drain(topic, fresh("g"), start_from="earliest")] == ["old"]


def test_the_policy_latest(lake: Installation) -> None:
    """Start from new messages only."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["old"])
    assert lake.drain(topic, group, start_from="latest") == []
    lake.publish(topic, ["new"])
    assert until_taken(lake, topic, group, "w").value == "new"


def test_the_policy_none(lake: Installation) -> None:
    """Error if there is no offset, until a seek sets one."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["a", "b"])
    body = {"topic": topic, "group": group, "owner": "w", "start_from": "none"}
    refused = lake.call("POST", "/v1/consume", body)
    assert (refused.status, refused.code) == (409, "no_position")
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "offset": 1})
    assert lake.consume(topic, group, "w", start_from="none")[0].value == "b"


def test_the_policy_counts_only_without_an_offset(lake: Installation) -> None:
    """The policy applies to groups without a saved offset: others continue from theirs."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["a", "b"])
    lake.ack(lake.consume(topic, group, "w", start_from="earliest")[0])
    for policy in ("latest", "none", "earliest"):
        # Clocks of servers differ by a few milliseconds: a message released at one may be due a moment later at
        # another.
        leased = until_taken(lake, topic, group, "w", start_from=policy)
        assert leased.value == "b"
        lake.nack(leased, kind="uncounted")


# More consumers than partitions ---------------------------------------------------------------------------------------


def _crowd(lake: Installation) -> tuple[str, str]:
    topic, group = lake.topic(6), fresh("g")
    for number in range(1, 9):
        lake.join(group, f"consumer-{number}", topic, start_from="earliest")
    return topic, group


def test_eight_consumers_of_six_partitions(lake: Installation) -> None:
    """Six consumers have one partition each; the seventh and eighth have none, and are reported as idle."""
    topic, group = _crowd(lake)
    assigned = lake.assigned(group, topic)
    assert sorted(partition for own in assigned.values() for partition in own) == [0, 1, 2, 3, 4, 5]
    assert [assigned["consumer-7"], assigned["consumer-8"]] == [[], []]
    assert lake.describe(group)["idle"] == ["consumer-7", "consumer-8"]


def test_a_consumer_without_a_partition_helps_out(lake: Installation) -> None:
    """In the document it is idle. Here it leases messages that others have not taken, and the order of keys is kept."""
    topic, group = _crowd(lake)
    lake.publish(topic, ["a1", "a2"], partition=0, key="a")
    lake.publish(topic, ["b1"], partition=0, key="b")
    generation = lake.describe(group)["generation"]
    helper = {"member_id": "consumer-8", "generation": generation, "wait_ms": 20_000}
    owner = {"member_id": "consumer-1", "generation": generation}
    (first,) = lake.consume(topic, group, "consumer-1", **owner)
    helped = lake.consume(topic, group, "consumer-8", 5, **helper)
    assert (first.value, [each.value for each in helped]) == ("a1", ["b1"])
    lake.ack(first)
    assert [each.value for each in lake.consume(topic, group, "consumer-8", 5, **helper)] == ["a2"]


def test_an_idle_consumer_takes_over(lake: Installation) -> None:
    """A consumer without a partition gets the one of a consumer that leaves."""
    topic, group = _crowd(lake)
    (freed,) = lake.assigned(group, topic)["consumer-3"]
    lake.leave(group, "consumer-3")
    assigned = lake.assigned(group, topic)
    assert [freed] in (assigned["consumer-7"], assigned["consumer-8"])
    assert len(lake.describe(group)["idle"]) == 1


# Monitoring -----------------------------------------------------------------------------------------------------------


def test_the_key_metrics(lake: Installation) -> None:
    """Lag is the number of messages behind the latest; rebalances and the time spent in them are reported."""
    topic, group = lake.topic(2), fresh("g")
    lake.join(group, "a", topic, start_from="earliest")
    lake.publish(topic, range(7))
    lake.ack(lake.consume(topic, group, "a")[0])
    assert lake.get(f"/v1/groups/{group}/lag")["lag"] == 6
    lake.join(group, "b", topic)
    described = lake.describe(group)
    assert described["rebalances"] == 2
    assert described["rebalancing_ms"] == 0, "a lease group never waits for revoked partitions"
    assert described["last_rebalance_at"] is not None
    series = lake.metrics()
    assert series[f'lakelog_group_lag_messages{{group="{group}",topic="{topic}"}}'] == 6
    assert series[f'lakelog_group_rebalances_total{{group="{group}"}}'] == 2
    assert series[f'lakelog_group_rebalancing_seconds_total{{group="{group}"}}'] == 0


# Best practices -------------------------------------------------------------------------------------------------------


def test_a_graceful_leave_frees_partitions_at_once(lake: Installation) -> None:
    """Leave the group cleanly: the others do not wait for the session timeout."""
    topic, group = lake.topic(2), fresh("order-service")
    lake.join(group, "a", topic)
    lake.join(group, "b", topic)
    lake.leave(group, "a")
    assert lake.assigned(group, topic) == {"b": [0, 1]}


def test_commit_after_processing_loses_nothing_in_a_crash(lake: Installation) -> None:
    """Messages that were not committed before a crash are delivered again."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    lake.consume(topic, group, "crashed", start_from="earliest", lease_ms=300)
    assert until_taken(lake, topic, group, "next").message["delivery"] == 2


@pytest.mark.parametrize("name", ["order-service", "analytics-pipeline"])
def test_groups_are_named_by_service(lake: Installation, name: str) -> None:
    """The names that the document recommends are valid group names."""
    topic, group = lake.topic(), fresh(name)
    lake.join(group, "consumer-1", topic)
    assert lake.describe(group)["group_id"] == group


# The example program --------------------------------------------------------------------------------------------------

_PROGRAM = """
    import sys
    import lakelog

    log = lakelog.connect(sys.argv[1])
    orders = log.topic(sys.argv[2])


    def process_order(order):
        if order == "bad" and not failed:
            failed.append(order)
            raise ValueError("not yet")
        print("processed", order, flush=True)


    failed = []


    @orders.subscribe(
        group=sys.argv[3], batch_size=100, ack="manual", start_from="earliest", retries=lakelog.Fixed(seconds=0.05)
    )
    def handle(order, delivery):
        try:
            process_order(order)
        except ValueError as error:
            delivery.nack(reason=str(error))
        else:
            delivery.ack()


    log.run()
    print("left", flush=True)
"""


def test_the_example_program(lake: Installation, tmp_path: Path) -> None:
    """A consumer loop with manual commit: ack after processing, nack to retry, and stop at SIGTERM."""
    topic, group = lake.topic(), fresh("order-processor")
    lake.publish(topic, ["good", "bad"])
    program = tmp_path / "consumer.py"
    program.write_text(textwrap.dedent(_PROGRAM))
    argv = [sys.executable, str(program), lake.urls, topic, group]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = {process.stdout.readline().strip() for _ in range(2)}
            assert lines == {"processed good", "processed bad"}
            eventually(lambda: lake.committed(group, topic) == [2])
            assert len(lake.describe(group)["members"]) == 1
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline().strip() == "left"
            assert process.wait(15) == 0
        finally:
            process.kill()
    described = lake.describe(group)
    assert (described["state"], described["progress"][0]["acked"]) == ("empty", 2)


def test_the_example_in_two_processes_shares_the_work(lake: Installation) -> None:
    """The same program in another process scales out: members of one group, each message to one of them."""
    topic, group = lake.topic(4), fresh("order-processor")
    seen = Seen()
    with connected(lake) as first, connected(lake) as second:
        for log in (first, second):
            _subscribe(log, topic, group, seen)
            log.start()
        assert sorted(len(own) for own in lake.assigned(group, topic).values()) == [2, 2]
        lake.publish(topic, range(20))
        seen.until(20)
    assert sorted(seen) == list(range(20))


def test_the_loop_continues_after_a_failed_poll(http_server: ThreadServer) -> None:
    """A server that is gone during a poll ends neither the loop nor the consumer."""
    with lakelog.connect(http_server.url) as log:
        topic = log.topic("orders")
        topic.create()
        with log.consumer(topic, group="order-processor") as consumer:
            assert consumer.batch(100, timeout=0).values == []
            http_server.stop()
            polled = in_background(consumer.batch, 100, timeout=30)
            http_server.start()
            topic.publish("one")
            assert polled.result(30).values == ["one"]


def _subscribe(log: lakelog.Lakelog, topic: str, group: str, seen: Seen) -> None:
    @log.topic(topic).subscribe(group=group, concurrency=4, start_from="earliest")
    def handle(value: Any) -> None:
        seen.append(value)
