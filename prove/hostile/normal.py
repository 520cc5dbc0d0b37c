"""The normal tenant: a steady rate of publishes, consumes with acks, and health checks, each with its latency.

A latency counts from the time at which the call was due, so that a stalled server cannot hide calls that were not made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prove.hostile.wire import Reply, Wire, connect, make_request

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
PUBLISH_SECONDS = 0.1
"""The time between two publishes of one publisher."""
HEALTH_SECONDS = 0.1
TIMEOUT_SECONDS = 30.0


@dataclass
class Latencies:
    """The latencies of one kind of call in seconds, and the number of calls that failed."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    @property
    def longest(self) -> float:
        return max(self.seconds, default=0.0)


class NormalTenant:
    """Calls servers for some seconds. `publish`, `consume` and `health` have the latencies of the last run."""

    def __init__(self, token: str, ports: list[int], *, publishers: int, consumers: int) -> None:
        self._token = token
        self._ports = ports
        self._publishers = publishers
        self._consumers = consumers
        self.publish = self.consume = self.health = Latencies()

    async def make_topic(self) -> None:
        wire = await connect(self._ports[0])
        assert wire is not None
        reply = await wire.call(self._request("POST", "/v1/topics", {"name": TOPIC, "partitions": PARTITIONS}))
        assert reply is not None and reply.status == 201, reply and reply.body
        wire.close()

    async def run(self, seconds: float) -> None:
        """Make all calls for this time, each publisher and consumer on its own connection."""
        self.publish, self.consume, self.health = Latencies(), Latencies(), Latencies()
        until = time.monotonic() + seconds
        callers = [self._every(PUBLISH_SECONDS, until, self._publisher(each)) for each in range(self._publishers)]
        callers += [self._every(PUBLISH_SECONDS, until, self._consumer(each)) for each in range(self._consumers)]
        callers += [self._every(HEALTH_SECONDS, until, self._prober(port)) for port in self._ports]
        await asyncio.gather(*callers)

    async def _every(self, pause: float, until: float, call: Callable[[float], Awaitable[None]]) -> None:
        due = time.monotonic()
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await call(due)
            due += pause

    def _publisher(self, number: int) -> Callable[[float], Awaitable[None]]:
        caller = _Caller(self._ports[number % len(self._ports)])
        body = {"messages": [{"value": {"order": number}, "key": f"customer-{number}"}]}
        request = self._request("POST", f"/v1/topics/{TOPIC}/messages", body)

        async def call(due: float) -> None:
            await caller.call(request, due, self.publish)

        return call

    def _consumer(self, number: int) -> Callable[[float], Awaitable[None]]:
        """Return a call that acks the messages of the last one, and consumes."""
        caller = _Caller(self._ports[number % len(self._ports)])
        answers: list[dict[str, object]] = []

        async def call(due: float) -> None:
            who = {"topic": TOPIC, "group": GROUP, "owner": f"worker-{number}"}
            body: dict[str, object] = {**who, "max_messages": 100, "start_from": "earliest"}
            body |= {"answers": answers} if answers else {}
            reply = await caller.call(self._request("POST", "/v1/consume", body), due, self.consume)
            answers.clear()
            for leased in reply.json["leases"] if reply is not None and reply.body else ():
                offsets = [message["offset"] for message in leased["messages"]]
                answers.append(
                    {"verb": "ack", "partition": leased["partition"], "token": leased["token"], "offsets": offsets}
                )

        return call

    def _prober(self, port: int) -> Callable[[float], Awaitable[None]]:
        """Return a health check on a new connection."""
        request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"

        async def call(due: float) -> None:
            caller = _Caller(port)
            await caller.call(request, due, self.health)
            caller.close()

        return call

    def _request(self, method: str, path: str, body: object) -> bytes:
        return make_request(self._token, method, path, body)


class _Caller:
    """A connection that is opened again after it was lost. Calls are not repeated."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire: Wire | None = None

    async def call(self, request: bytes, due: float, latencies: Latencies) -> Reply | None:
        reply: Reply | None = None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                if self._wire is None or self._wire.transport is None:
                    self._wire = await connect(self._port)
                if self._wire is not None:
                    reply = await self._wire.call(request)
        except TimeoutError:
            self.close()
        latencies.seconds.append(time.monotonic() - due)
        if reply is None or reply.status != 200:
            latencies.failed += 1
            return None
        return reply

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
