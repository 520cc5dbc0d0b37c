"""The process of a hostile tenant: costly filters, expanding batches, many polls, slow connections, many partitions.

It waits as long as Retry-After says after a refusal, and opens a new connection when one is closed: it wants to be
served, and takes whatever it gets. Until SIGTERM or the end of its time it makes no call of another environment. At
the end it deletes its topics and writes its figures. It uses little processor time, which the figures show, because it
shares the machine with the servers.
"""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path

import msgspec
import uvloop

from lakelog.server.connections import raise_file_limit
from lakelog.wire.frames import MEDIA_TYPE
from prove.hostile.expanding_batch import expanding_publish
from prove.hostile.wire import Reply, Wire, connect, make_request

KEPT_MS = 60_000
"""The retention of the tenant's messages, in case that it cannot delete its topics."""
EXPANDING_PARTITIONS = 4
TRICKLE_SECONDS = 2.0
"""The time between two bytes of a slow connection."""
POLL_MS = 30_000
PATTERN = "%" + "a_" * 400 + "b%"
"""A pattern that is compared with every position of a message."""
FILTERED_BYTES = 1 << 19
FILTERED_MESSAGES = 4
PROGRESS_SECONDS = 0.5
PER_PUBLISH = 250
"""The number of partitions in one publish."""


class HostilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of each attack, over all servers."""

    token: str
    ports: list[int]
    figures: str
    """The file for the figures."""
    addresses: tuple[str, ...] = ("127.0.0.1",)
    """The addresses that the tenant connects from, in turn."""
    polls: int = 0
    slow: int = 0
    """Connections that send a byte from time to time."""
    unread: int = 0
    """Connections that request large responses and do not read them."""
    partitions: int = 0
    filters: int = 0
    """Callers of new groups with costly filters, at the same time."""
    expansions: int = 0
    """Readers of expanding batches, at the same time."""
    seconds: float = 600.0
    seed: int = 0


class HostileFigures(msgspec.Struct, kw_only=True):
    """The calls of the tenant and their results. `limited` counts those that a limit of a server refused or ended."""

    calls: int = 0
    limited: int = 0
    errors: int = 0
    """Responses of 5xx that do not say when to retry."""
    lost: int = 0
    """Calls without a response."""
    opened: int = 0
    polling: int = 0
    """The largest number of polls at the same time."""
    partitions: int = 0
    read_bytes: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    statuses: dict[int, int] = {}


class HostileTenant:
    """Runs all attacks of a plan at the same time."""

    def __init__(self, plan: HostilePlan) -> None:
        self._plan = plan
        self._figures = HostileFigures(statuses={})
        self._chance = random.Random(plan.seed)
        self._topics: list[str] = []
        self._is_polled = asyncio.Event()
        self._polling = 0
        self._groups = 0
        self._next = 0

    async def run(self) -> HostileFigures:
        """Run for the time of the plan, or until a signal arrives."""
        began = time.monotonic()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        tasks = [asyncio.create_task(each) for each in self._attacks()]
        tasks.append(asyncio.create_task(self._report_progress()))
        try:
            async with asyncio.timeout(self._plan.seconds):
                await stopped.wait()
        except TimeoutError:
            pass
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await self._delete_topics()
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._figures.cpu_seconds = used.ru_utime + used.ru_stime
        self._figures.seconds = time.monotonic() - began
        failures = [each for each in outcomes if isinstance(each, Exception)]
        if failures:
            raise failures[0]
        return self._figures

    def _attacks(self) -> list[Coroutine[None, None, None]]:
        plan = self._plan
        attacks = [self._poll(number) for number in range(plan.polls)]
        attacks += [self._trickle(number) for number in range(plan.slow)]
        attacks += [self._widen()] if plan.partitions else []
        if plan.filters:
            attacks.append(self._filters())
        if plan.expansions or plan.unread:
            attacks.append(self._expansions())
        return attacks

    async def _report_progress(self) -> None:
        path = progress_file(self._plan.figures)
        while True:
            write_figures(path, self._figures)
            await asyncio.sleep(PROGRESS_SECONDS)

    # Calls ------------------------------------------------------------------------------------------------------------

    async def _connected(self) -> Wire:
        """Return a new connection to the next server from the next address."""
        plan = self._plan
        while True:
            number = self._next = self._next + 1
            port = plan.ports[number % len(plan.ports)]
            wire = await connect(port, plan.addresses[number // len(plan.ports) % len(plan.addresses)])
            if wire is not None:
                self._figures.opened += 1
                return wire
            self._figures.limited += 1
            await asyncio.sleep(self._chance.uniform(0.5, 1.5))

    async def _call(self, wire: Wire | None, request: bytes) -> tuple[Wire | None, Reply | None]:
        """Make a call on the connection, or on a new one. Wait after a refusal."""
        if wire is None or wire.transport is None:
            wire = await self._connected()
        self._figures.calls += 1
        reply = await wire.call(request)
        self._count(reply)
        if reply is None or reply.status >= 400:
            pause = max(1.0, reply.retry_after if reply else 0.0)
            await asyncio.sleep(pause * self._chance.uniform(1.0, 1.5))
        return (wire if reply else None), reply

    def _count(self, reply: Reply | None) -> None:
        figures = self._figures
        if reply is None:
            figures.lost += 1
            return
        figures.statuses[reply.status] = figures.statuses.get(reply.status, 0) + 1
        figures.read_bytes += reply.size
        if reply.status in (408, 429) or (reply.status == 503 and reply.retry_after):
            figures.limited += 1
        elif reply.status >= 500:
            figures.errors += 1

    def _request(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> bytes:
        return make_request(self._plan.token, method, path, body, content_type=content_type)

    async def _make_topic(self, name: str, partitions: int) -> Wire | None:
        """Create a topic and return the connection. The tenant tries until it succeeds."""
        body = {"name": name, "partitions": partitions, "retention": {"max_age_ms": KEPT_MS}}
        wire, reply = await self._call(None, self._request("POST", "/v1/topics", body))
        while reply is None or reply.status not in (200, 201, 409):
            wire, reply = await self._call(wire, self._request("POST", "/v1/topics", body))
        self._topics.append(name)
        return wire

    async def _delete_topics(self) -> None:
        for name in self._topics:
            wire = await connect(self._plan.ports[0])
            if wire is not None:
                async with asyncio.timeout(30):
                    await wire.call(self._request("DELETE", f"/v1/topics/{name}"))
                wire.close()

    def _consume(self, topic: str, *, filter: str | None = None, wait_ms: int = 0, group: str = "") -> bytes:
        self._groups += not group
        body = {
            "topic": topic,
            "group": group or f"hostile-{self._groups}",
            "owner": f"owner-{self._groups}",
            "max_messages": 10_000,
            "wait_ms": wait_ms,
            "lease_ms": 5_000,
        }
        if not group:
            body |= {"start_from": "earliest", "filter": filter} if filter else {"start_from": "earliest"}
        return self._request("POST", "/v1/consume", body)

    # Attacks ----------------------------------------------------------------------------------------------------------

    async def _poll(self, number: int) -> None:
        """Wait for messages that never come: half of the polls are consumes, the others fetch."""
        await asyncio.sleep(self._chance.uniform(0.0, self._plan.polls / 1000))
        if number == 0:
            await self._make_topic("polled", 1)
            self._is_polled.set()
        await self._is_polled.wait()
        fetch = f"/v1/topics/polled/partitions/0/messages?offset=latest&wait_ms={POLL_MS}"
        if number % 2:
            request = self._request("GET", fetch)
        else:
            request = self._consume("polled", wait_ms=POLL_MS, group=f"polls-{number % 100}")
        wire: Wire | None = None
        while True:
            self._polling += 1
            self._figures.polling = max(self._figures.polling, self._polling)
            try:
                wire, _ = await self._call(wire, request)
            finally:
                self._polling -= 1

    async def _trickle(self, number: int) -> None:
        """Send a head, or a body after its head, byte by byte."""
        await asyncio.sleep(self._chance.uniform(0.0, self._plan.slow / 1000))
        whole = self._request("POST", "/v1/topics/none/messages", b"x" * 1000)
        head = whole[: whole.index(b"\r\n\r\n") + 4] if number % 3 == 0 else whole[:20]
        while True:
            wire = await self._connected()
            wire.send(head)
            while wire.transport is not None:
                await asyncio.wait([wire.ended], timeout=TRICKLE_SECONDS * self._chance.uniform(0.8, 1.2))
                wire.send(b"x")
            self._figures.limited += 1

    async def _widen(self) -> None:
        """Create topics with many partitions, publish to each partition, and consume from all."""
        wire: Wire | None = None
        while self._figures.partitions < self._plan.partitions:
            count = min(10_000, self._plan.partitions - self._figures.partitions)
            wire = await self._make_topic(f"wide-{len(self._topics)}", count)
            self._figures.partitions += count
        wide = [name for name in self._topics if name.startswith("wide-")]
        count = min(10_000, self._plan.partitions)
        while True:
            for name in wide:
                for first in range(0, count, PER_PUBLISH):
                    some = range(first, min(count, first + PER_PUBLISH))
                    body = {"messages": [{"value": 1, "partition": each} for each in some]}
                    wire, _ = await self._call(wire, self._request("POST", f"/v1/topics/{name}/messages", body))
                    wire, _ = await self._call(wire, self._consume(name, group="wide"))

    async def _filters(self) -> None:
        wire = await self._make_topic("filtered", 1)
        body = {"messages": [{"value": "a" * FILTERED_BYTES}] * FILTERED_MESSAGES}
        await self._call(wire, self._request("POST", "/v1/topics/filtered/messages", body))

        async def consume() -> None:
            wire: Wire | None = None
            while True:
                wire, _ = await self._call(wire, self._consume("filtered", filter=f"value like '{PATTERN}'"))

        await asyncio.gather(*(consume() for _ in range(self._plan.filters)))

    async def _expansions(self) -> None:
        wire = await self._make_topic("expanding", EXPANDING_PARTITIONS)
        body = expanding_publish(EXPANDING_PARTITIONS)
        path = "/v1/topics/expanding/messages"
        reply = None
        while reply is None or reply.status >= 400:
            wire, reply = await self._call(wire, self._request("POST", path, body, content_type=MEDIA_TYPE))

        async def consume() -> None:
            wire: Wire | None = None
            while True:
                wire, _ = await self._call(wire, self._consume("expanding"))

        async def request_unread() -> None:
            while True:
                wire = await self._connected()
                assert wire.transport is not None
                wire.send(self._consume("expanding"))
                wire.transport.pause_reading()
                self._figures.calls += 1
                # A transport that does not read does not notice the end of its connection either.
                await asyncio.sleep(self._chance.uniform(20.0, 30.0))
                wire.close()

        plan = self._plan
        await asyncio.gather(
            *(consume() for _ in range(plan.expansions)), *(request_unread() for _ in range(plan.unread))
        )


def progress_file(figures: str) -> Path:
    """Return the file that has the figures so far. It exists from the beginning of the attacks on."""
    return Path(figures).with_suffix(".progress")


def write_figures(path: Path, figures: HostileFigures) -> None:
    """Write the figures so that no reader sees a part of them."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(msgspec.json.encode(figures))
    part.rename(path)


def main(text: bytes) -> None:
    plan = msgspec.json.decode(text, type=HostilePlan)
    raise_file_limit()
    figures = uvloop.run(HostileTenant(plan).run())
    write_figures(Path(plan.figures), figures)


if __name__ == "__main__":
    main(sys.argv[1].encode())
