"""Announcements between servers that are all lost: messages and changes still arrive within two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size

LIMIT_SECONDS = {Size.CI: 10.0, Size.FULL: 2.0}
"""At ci size, on a shared machine, the times only need to be shorter than the wait of a consumer."""
NOTICED_SECONDS = {Size.CI: 3.0, Size.FULL: 2.0}
MESSAGES = {Size.CI: 3, Size.FULL: 60}
# Every call is served where it arrives, so that the publisher and the consumer are in different processes.
_ENVIRONMENT = {"LAKELOG_FAILPOINTS": "announcement.before_send=error", "LAKELOG_FORWARD": "false"}


@pytest.fixture
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster, env=_ENVIRONMENT) as fleet:
        fleet.create_topic("orders", 4)
        yield fleet


def call_of(group: str) -> dict[str, Any]:
    return {"topic": "orders", "group": group, "owner": group}


def consume_once(fleet: Fleet, group: str, wait_ms: int) -> list[dict[str, Any]]:
    """Consume at the second server. A new group begins with the first message."""
    body = {**call_of(group), "wait_ms": wait_ms, "start_from": "earliest"}
    leases: list[dict[str, Any]] = fleet.request("POST", "/v1/consume", body, server=1)["leases"]
    return leases


def consume(fleet: Fleet, group: str) -> float:
    """Wait for a message at the second server, ack it, and return when it arrived."""
    found = consume_once(fleet, group, 20_000)
    at = time.monotonic()
    assert found
    for lease in found:
        for message in lease["messages"]:
            place = {"partition": lease["partition"], "offset": message["offset"]}
            fleet.request("POST", "/v1/ack", {**call_of(group), **place}, server=1)
    return at


def publish(fleet: Fleet, number: int) -> float:
    """Publish a message at the first server, and return when it was acknowledged."""
    fleet.request("POST", "/v1/topics/orders/messages", {"messages": [{"value": number, "key": str(number)}]})
    return time.monotonic()


def test_a_message_whose_announcement_was_lost_arrives_within_two_seconds(fleet: Fleet, size: Size) -> None:
    with ThreadPoolExecutor() as pool:
        for number in range(MESSAGES[size]):
            waiting = [pool.submit(consume, fleet, group) for group in ("billing", "search")]
            time.sleep(0.3)
            published = publish(fleet, number)
            for arrived in waiting:
                assert arrived.result() - published < LIMIT_SECONDS[size]


def test_a_group_that_is_resumed_elsewhere_continues_within_two_seconds(fleet: Fleet, size: Size) -> None:
    with ThreadPoolExecutor() as pool:
        # The group exists before it is paused.
        assert consume_once(fleet, "billing", 0) == []
        waiting = pool.submit(consume, fleet, "billing")
        time.sleep(0.3)
        fleet.request("POST", "/v1/groups/billing/pause", {})
        time.sleep(NOTICED_SECONDS[size])
        publish(fleet, 1)
        time.sleep(2.0)
        assert not waiting.done(), "the pause was noticed"
        fleet.request("POST", "/v1/groups/billing/resume", {})
        resumed = time.monotonic()
        assert waiting.result() - resumed < LIMIT_SECONDS[size]
