"""Infrastructure of the tests of the four reference documents: two servers, called in turn, and the HTTP operations.

Each `test_document_*.py` covers one document. The docstring of a test paraphrases the sentence that it proves.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import lakelog
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.waiting import eventually

SHORT_MS = 700
"""The duration of a lease or session that a test lets expire."""
LONG_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The response of a server with any status."""

    status: int
    body: Any

    @property
    def code(self) -> str | None:
        return self.body.get("code") if isinstance(self.body, dict) else None


@dataclass(frozen=True, kw_only=True)
class Leased:
    """One message that an owner holds."""

    topic: str
    group: str
    owner: str
    partition: int
    token: int
    expires_at: str
    message: dict[str, Any]

    @property
    def offset(self) -> int:
        return int(self.message["offset"])

    @property
    def value(self) -> Any:
        return self.message["value"]

    def naming(self, **more: Any) -> dict[str, Any]:
        """Return the body of an answer about this message, without its token: topic, group and owner are enough."""
        whose = {"topic": self.topic, "group": self.group, "owner": self.owner}
        return {**whose, "partition": self.partition, "offset": self.offset, **more}


class Installation:
    """Two servers of one installation. Calls alternate between them."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._turns = itertools.cycle(fleet.ports)

    @property
    def url(self) -> str:
        """Return the address of one server, alternating."""
        return f"http://127.0.0.1:{next(self._turns)}"

    @property
    def urls(self) -> str:
        """Return both addresses, as a client gets them."""
        return ",".join(f"http://127.0.0.1:{port}" for port in self.fleet.ports)

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", next(self._turns), timeout=40)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            return Answer(status=answer.status, body=json.loads(data) if data else None)
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.call(method, path, body)
        assert 200 <= answer.status < 300, (method, path, body, answer)
        return answer.body

    def get(self, path: str) -> Any:
        return self.ok("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        return self.ok("POST", path, body)

    def metrics(self) -> Mapping[str, float]:
        """Return the sum of the group metrics of both servers, by series."""
        series: defaultdict[str, float] = defaultdict(float)
        for port in self.fleet.ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/metrics", timeout=40) as answer:
                for line in answer.read().decode().splitlines():
                    if not line.startswith("#"):
                        name, _, value = line.rpartition(" ")
                        series[name] += float(value)
        return series

    # Topics and messages ----------------------------------------------------------------------------------------------

    def topic(self, partitions: int = 1, **settings: Any) -> str:
        """Create a topic with a new name."""
        name = fresh("orders")
        self.post("/v1/topics", {"name": name, "partitions": partitions, **settings})
        return name

    def publish(self, topic: str, values: Iterable[Any], **each: Any) -> list[dict[str, Any]]:
        """Publish the values and return their offsets; `each` are fields of all messages."""
        messages = [{"value": value, **each} for value in values]
        results: list[dict[str, Any]] = self.post(f"/v1/topics/{topic}/messages", {"messages": messages})["results"]
        return results

    # Consuming --------------------------------------------------------------------------------------------------------

    def consume(self, topic: str, group: str, owner: str, most: int = 1, **more: Any) -> list[Leased]:
        body = {"topic": topic, "group": group, "owner": owner, "max_messages": most, **more}
        leases = self.post("/v1/consume", body)["leases"]
        return [
            Leased(
                topic=topic,
                group=group,
                owner=owner,
                partition=lease["partition"],
                token=lease["token"],
                expires_at=lease["expires_at"],
                message=message,
            )
            for lease in leases
            for message in lease["messages"]
        ]

    def drain(self, topic: str, group: str, owner: str = "drainer", least: int = 0, **more: Any) -> list[Leased]:
        """Lease and ack until no message is left now, and return all messages.

        `least` waits for that number of messages: a server learns a moment later about messages that another one
        published or moved.
        """
        found: list[Leased] = []
        deadline = time.monotonic() + 20.0
        while True:
            waits = len(found) < least and time.monotonic() < deadline
            taken = self.consume(topic, group, owner, 100, **{"wait_ms": 1000 if waits else 0, **more})
            for leased in taken:
                self.ack(leased)
            found += taken
            if not taken and not waits:
                return found

    def ack(self, leased: Leased) -> None:
        self.post("/v1/ack", leased.naming(token=leased.token))

    def nack(self, leased: Leased, **more: Any) -> None:
        self.post("/v1/nack", leased.naming(token=leased.token, **more))

    def hold(self, topic: str, group: str, owner: str, count: int, **more: Any) -> list[Leased]:
        """Lease this number of messages to one owner: a call may get fewer than exist."""
        held: list[Leased] = []
        while len(held) < count:
            taken = self.consume(topic, group, owner, count - len(held), wait_ms=1000, lease_ms=LONG_MS, **more)
            assert taken, f"only {len(held)} messages"
            held += taken
        return held

    def begin(self, topic: str, group: str, **wish: Any) -> None:
        """Create the group, reading the topic from its beginning by default, without members."""
        self.join(group, "founder", topic, **{"start_from": "earliest", **wish})
        self.leave(group, "founder")

    # Groups -----------------------------------------------------------------------------------------------------------

    def join(self, group: str, member: str, *topics: str, session_ms: int = LONG_MS, **more: Any) -> dict[str, Any]:
        body = {"member_id": member, "topics": list(topics), "session_timeout_ms": session_ms, **more}
        joined: dict[str, Any] = self.post(f"/groups/{group}/join", body)
        return joined

    def heartbeat(self, group: str, joined: dict[str, Any]) -> dict[str, Any]:
        body = {"member_id": joined["member_id"], "generation": joined["generation"]}
        beat: dict[str, Any] = self.post(f"/groups/{group}/heartbeat", body)
        return beat

    def leave(self, group: str, member: str) -> None:
        self.post(f"/groups/{group}/leave", {"member_id": member})

    def describe(self, group: str) -> dict[str, Any]:
        described: dict[str, Any] = self.get(f"/groups/{group}")
        return described

    def assigned(self, group: str, topic: str) -> dict[str, list[int]]:
        """Return the assigned partitions of the topic by member."""
        members = self.describe(group)["members"]
        return {each["member_id"]: each["assigned_partitions"].get(topic, []) for each in members}

    def progress(self, group: str, topic: str) -> dict[int, dict[str, Any]]:
        found = self.get(f"/v1/groups/{group}/lag?topic={topic}")["partitions"]
        return {each["partition"]: each for each in found}

    def committed(self, group: str, topic: str) -> list[int]:
        return [each["committed"] for each in self.progress(group, topic).values()]

    def total(self, group: str, topic: str, field: str) -> int:
        return sum(each[field] for each in self.progress(group, topic).values())

    def dead(self, group: str) -> list[dict[str, Any]]:
        letters: list[dict[str, Any]] = self.get(f"/v1/groups/{group}/dead-letters")["dead_letters"]
        return letters


class Beating:
    """Sends heartbeats of a member until the end of the block, as a live consumer does."""

    def __init__(self, installation: Installation, group: str, joined: dict[str, Any]) -> None:
        self._installation = installation
        self._group = group
        self.latest = joined
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats")

    def _beat(self) -> None:
        while not self._ended.wait(SHORT_MS / 4000):
            self.latest = self._installation.heartbeat(self._group, self.latest)

    def __enter__(self) -> Beating:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)


def fresh(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def in_background(function: Any, *arguments: Any, **named: Any) -> Future[Any]:
    """Run the call in the background: a long poll that has to wait."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="in-background", daemon=True).start()
    return future


def until_taken(installation: Installation, topic: str, group: str, owner: str, **more: Any) -> Leased:
    """Wait for one message with long polls."""
    taken = eventually(lambda: installation.consume(topic, group, owner, wait_ms=1000, **more), every=0.0)
    return taken[0]


def taken_after(
    installation: Installation, since: float, milliseconds: int, topic: str, group: str, owner: str
) -> Leased:
    """Check that no message comes before this time after `since`, and wait for one. A busy machine may be late."""
    early = installation.consume(topic, group, owner)
    assert not early or time.monotonic() - since >= milliseconds / 1000
    return early[0] if early else until_taken(installation, topic, group, owner)


@pytest.fixture(scope="session")
def lake(cluster: Cluster) -> Iterator[Installation]:
    """Yield one installation for the tests of all four documents; each test uses new names of topics and groups."""
    with Fleet(cluster, servers=2, authenticate=False) as fleet:
        yield Installation(fleet)
    cluster.drop_database(fleet.url)


class Seen(list[Any]):
    """Notes of handlers, from any thread."""

    def until(self, count: int, within: float = 20.0) -> list[Any]:
        """Wait for this number of notes, and return them."""
        eventually(lambda: len(self) >= count, within=within, what=f"{count} notes")
        return list(self)


@dataclass(frozen=True)
class OrderEvent:
    """A message of the topic `order-events` of the OqronKit document; its type decides which fields it has."""

    type: str
    order_id: str
    account_id: str
    total: float | None = None
    payment_id: str | None = None


def order_events(log: lakelog.Lakelog, partitions: int = 16) -> lakelog.Topic[OrderEvent]:
    """Create the topic of the first example of the OqronKit document."""
    events = log.topic(
        fresh("order-events"),
        type=OrderEvent,
        key=lambda event: event.account_id,
        validate=lambda event: True if event.order_id else "order_id is required",
    )
    events.create(partitions=partitions, tags=["orders", "billing"], max_age=timedelta(days=7), max_count=100_000)
    return events


@contextlib.contextmanager
def connected(lake: Installation) -> Iterator[lakelog.Lakelog]:
    """Yield the public client, over both servers. Its subscriptions run from `log.start()` to the end."""
    with lakelog.connect(lake.urls) as log:
        yield log
        log.stop(5.0)
