"""Groups over HTTP with two real servers: leases are the same on both, and a server may die at any time."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import lakelog
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.waiting import eventually


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster, servers=2, authenticate=True) as fleet:
        eventually(lambda: _know_each_other(fleet))
        yield fleet


def _call(fleet: Fleet, method: str, path: str, body: Any = None, *, server: int = 0) -> httpx.Response:
    with _client(fleet, server) as client:
        return client.request(method, path, json=body)


def _client(fleet: Fleet, server: int, **headers: str) -> httpx.Client:
    headers.setdefault("authorization", f"Bearer {fleet.token}")
    url = f"http://127.0.0.1:{fleet.ports[server]}"
    # Without TLS no certificates are loaded, which would take most of a test's time.
    return httpx.Client(base_url=url, headers=headers, timeout=40, trust_env=False, verify=False)


def _forwarded(fleet: Fleet, server: int) -> float:
    lines = _call(fleet, "GET", "/metrics", server=server).text.splitlines()
    name = 'lakelog_forwarded_calls_total{outcome="answered"} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def _know_each_other(fleet: Fleet) -> bool:
    """Return whether each server forwards heartbeats of some groups; the groups do not exist, so nothing is created."""
    for number in range(20):
        body = {"member_id": "nobody", "generation": 0}
        for server in range(2):
            _call(fleet, "POST", f"/v1/groups/probe-{number}/heartbeat", body, server=server)
    return all(_forwarded(fleet, server) > 0 for server in range(2))


def _publish(fleet: Fleet, topic: str, count: int) -> None:
    messages = [{"value": number} for number in range(count)]
    fleet.request("POST", f"/v1/topics/{topic}/messages", {"messages": messages})


def test_any_server_serves_any_call(fleet: Fleet) -> None:
    fleet.create_topic("any", 1)
    _publish(fleet, "any", 40)
    before = sum(_forwarded(fleet, server) for server in range(2))
    seen = []
    for number in range(40):
        who = {"topic": "any", "group": f"g{number % 4}", "owner": "w1"}
        ask = {**who, "start_from": "earliest", "max_messages": 1}
        leased = _call(fleet, "POST", "/v1/consume", ask, server=number % 2)
        (lease,) = leased.json()["leases"]
        seen.append(lease["messages"][0]["offset"])
        ack = {**who, "partition": 0, "token": lease["token"], "offset": seen[-1]}
        assert _call(fleet, "POST", "/v1/ack", ack, server=(number + 1) % 2).status_code == 204
    assert seen == [number // 4 for number in range(40)]
    # One call goes to the home directly, and the call to the other server is forwarded.
    eventually(lambda: sum(_forwarded(fleet, server) for server in range(2)) - before == 40)


def test_refusals_are_passed_back(fleet: Fleet) -> None:
    fleet.create_topic("refusals", 1)
    _publish(fleet, "refusals", 1)
    who = {"topic": "refusals", "group": "g", "owner": "w1"}
    _call(fleet, "POST", "/v1/consume", {**who, "start_from": "earliest"})
    for server in range(2):
        other = _call(fleet, "POST", "/v1/ack", {**who, "owner": "w2", "partition": 0, "offset": 0}, server=server)
        assert (other.status_code, other.json()["code"]) == (409, "not_owner")
        assert other.headers["content-type"] == "application/problem+json"
        with _client(fleet, server, authorization="Bearer wrong") as client:
            assert client.post("/v1/consume", json=who).status_code == 401


def test_a_long_poll_is_passed_on_and_woken(fleet: Fleet) -> None:
    fleet.create_topic("polls", 1)
    with ThreadPoolExecutor(2) as pool:
        for number in range(2):
            who = {"topic": "polls", "group": "g", "owner": f"w{number}", "wait_ms": 20_000}
            poll = pool.submit(_call, fleet, "POST", "/v1/consume", who, server=number)
            eventually(lambda: _is_read(fleet, "polls"))
            _publish(fleet, "polls", 1)
            (lease,) = poll.result(15).json()["leases"]
            assert [message["offset"] for message in lease["messages"]] == [number]


def _is_read(fleet: Fleet, topic: str) -> bool:
    """Return whether the group has its start position: earlier messages do not belong to it."""
    groups = _call(fleet, "GET", f"/v1/topics/{topic}/stats").json()["groups"]
    return bool(groups)


def test_members_see_their_own_host_through_either_server(fleet: Fleet) -> None:
    fleet.create_topic("members", 4)
    for number in range(2):
        body = {"member_id": f"m{number}", "topics": ["members"]}
        with _client(fleet, number, **{"x-forwarded-for": "6.6.6.6"}) as client:
            assert client.post("/groups/crew/join", json=body).status_code == 200
    described = _call(fleet, "GET", "/groups/crew").json()
    assert [member["client_host"] for member in described["members"]] == ["127.0.0.1"] * 2
    assert described["generation"] == 2
    parts = [partition for member in described["members"] for partition in member["assigned_partitions"]["members"]]
    assert sorted(parts) == [0, 1, 2, 3]


def test_a_stream_pushes_as_it_is_answered(fleet: Fleet) -> None:
    """The answers go to either server, and the stream notices them."""
    fleet.create_topic("pushed", 1)
    _publish(fleet, "pushed", 6)
    connection = http.client.HTTPConnection("127.0.0.1", fleet.ports[0], timeout=30)
    headers = {"authorization": f"Bearer {fleet.token}", "accept": "application/x-ndjson"}
    connection.request("GET", "/v1/consume?topic=pushed&group=g&owner=w1&start_from=earliest", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("content-type")) == (200, "application/x-ndjson")
    seen: list[int] = []
    while len(seen) < 6:
        line = answer.readline().strip()
        if not line:
            continue
        message = json.loads(line)
        seen.append(message["value"])
        ack = {"topic": "pushed", "group": "g", "owner": "w1", "partition": 0, "token": message["token"]}
        body = {**ack, "offset": message["offset"]}
        assert _call(fleet, "POST", "/v1/ack", body, server=len(seen) % 2).status_code == 204
    connection.close()
    assert seen == list(range(6))


def test_s8_servers_that_die_lose_no_lease(cluster: Cluster) -> None:
    """S8: a lease taken through one server is valid when that server is killed, and is answered through the other."""
    with Fleet(cluster, servers=2) as fleet:
        eventually(lambda: _know_each_other(fleet))
        fleet.create_topic("deaths", 1)
        _publish(fleet, "deaths", 20)
        who = {"topic": "deaths", "owner": "w1"}
        tokens = {}
        for group in (f"g{number}" for number in range(8)):
            ask = {**who, "group": group, "start_from": "earliest"}
            (lease,) = _call(fleet, "POST", "/v1/consume", ask, server=0).json()["leases"]
            tokens[group] = lease["token"]
        fleet.servers[1].kill9()
        for group, token in tokens.items():
            body = {**who, "group": group, "partition": 0, "token": token, "offset": 0}
            assert _call(fleet, "POST", "/v1/ack", body, server=0).status_code == 204
            (lease,) = _call(fleet, "POST", "/v1/consume", {**who, "group": group}, server=0).json()["leases"]
            assert [message["offset"] for message in lease["messages"]] == [1]


def test_a_client_that_knows_all_servers_calls_the_home(fleet: Fleet) -> None:
    """Of 40 calls of each consumer and more, only those of its membership and the first ones are forwarded."""
    urls = ",".join(f"http://127.0.0.1:{port}" for port in fleet.ports)
    before = sum(_forwarded(fleet, server) for server in range(2))
    with lakelog.connect(urls, token=fleet.token) as log:
        for number in range(4):
            topic = log.topic(f"direct-{number}")
            topic.create(partitions=1)
            with log.consumer(topic.name, group="g", start_from="earliest", commit="immediate") as consumer:
                for offset in range(20):
                    topic.publish(offset)
                    message = consumer.next(timeout=10)
                    assert message is not None
                    assert message.offset == offset
    assert sum(_forwarded(fleet, server) for server in range(2)) - before <= 4 * 6
