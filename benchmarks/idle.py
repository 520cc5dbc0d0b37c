"""idle: the load on PostgreSQL of topics and groups without new messages, on two servers.

Each group has one member that does what a worker does: it sends heartbeats and repeats a long poll.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import lakelog
from benchmarks.environment import Environment, Served
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from lakelog.client.worker.lease_taker import WAIT_MS
from lakelog.model.lease import ConsumeRequest
from lakelog.model.membership import JoinRequest, Membership
from tests.kit.size import Size

SERVERS = 2
TOPICS = 1000
CI_TOPICS = 20
SETTLE_SECONDS = 40.0
"""Longer than the caches of a server live, so that their refresh is measured."""
CI_SETTLE_SECONDS = 1.0
_AT_ONCE = 20


class WaitingGroups:
    """Topics with one waiting group each, spread over servers. They are created by `start`, in a thread."""

    def __init__(self, urls: list[str], topics: int) -> None:
        self._urls = urls
        self._topics = topics
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        self.check()

    def check(self) -> None:
        """Raise the error of a group whose calls failed."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        logs = [lakelog.connect_async(url) for url in self._urls]
        room = asyncio.Semaphore(_AT_ONCE)
        numbers = range(self._topics)
        try:
            members = await asyncio.gather(*(self._join(room, logs[n % len(logs)], f"idle-{n}") for n in numbers))
            calls = [
                asyncio.create_task(work(logs[n % len(logs)], f"idle-{n}", members[n]))
                for n in numbers
                for work in (_poll, _keep_alive)
            ]
            self._ready.set()
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait([stopped, *calls], return_when=asyncio.FIRST_COMPLETED)
            failed = [call for call in calls if call.done()]
            for call in (stopped, *calls):
                call.cancel()
            await asyncio.gather(stopped, *calls, return_exceptions=True)
            for call in failed:
                call.result()
        finally:
            for log in logs:
                await log.close()

    async def _join(self, room: asyncio.Semaphore, log: lakelog.AsyncLakelog, name: str) -> Membership:
        async with room:
            await log.topic(name).create()
            return await log.group(name).join(JoinRequest(group=name, topics=(name,)))


async def _poll(log: lakelog.AsyncLakelog, name: str, member: Membership) -> None:
    request = ConsumeRequest(
        topic=name, group=name, owner=member.member_id, wait_ms=WAIT_MS, member_id=member.member_id
    )
    while True:
        await log.group(name).consume(request)


async def _keep_alive(log: lakelog.AsyncLakelog, name: str, member: Membership) -> None:
    while True:
        await asyncio.sleep(member.heartbeat_ms / 1000)
        await log.group(name).heartbeat(member.member_id, member.generation)


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    topics = TOPICS if plan.size is Size.FULL else CI_TOPICS
    environment.notes |= {"servers": SERVERS, "topics": topics, "groups": topics}
    with ExitStack() as stack:
        served = [stack.enter_context(environment.serve())]
        served += [stack.enter_context(environment.serve_on(served[0].database)) for _ in range(SERVERS - 1)]
        groups = WaitingGroups([each.url for each in served], topics)
        groups.start()
        stack.callback(groups.stop)
        time.sleep(SETTLE_SECONDS if plan.size is Size.FULL else CI_SETTLE_SECONDS)

        def ours() -> Measured:
            before, start = _statements(environment, served[0]), time.monotonic()
            time.sleep(plan.seconds)
            rate = (_statements(environment, served[0]) - before) / (time.monotonic() - start)
            groups.check()
            return Measured(figure=rate, notes={"connections": _connections(environment, served[0])})

        yield {OURS: ours}


def _statements(environment: Environment, served: Served) -> int:
    """Return how many statements the servers ran: each is one transaction. PostgreSQL counts about a second late."""
    name = urlsplit(served.database).path.lstrip("/")
    statement = f"select xact_commit + xact_rollback from pg_stat_database where datname = '{name}'"
    [(count,)] = environment.cluster.execute(statement)
    return int(count)


def _connections(environment: Environment, served: Served) -> int:
    name = urlsplit(served.database).path.lstrip("/")
    [(count,)] = environment.cluster.execute(f"select count(*) from pg_stat_activity where datname = '{name}'")
    return int(count)


BENCHMARK = Benchmark(
    name="idle",
    about="statements of PostgreSQL for 1,000 topics with a waiting group each, on two servers",
    unit="statements/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=2),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=1, messages=0, seconds=60),
    },
    targets={OURS: 200, "connections": 12},
    less_is_better=True,
)
