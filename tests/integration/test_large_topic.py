"""One topic with many partitions: create, publish to all, consume with 20 workers over HTTP, describe, delete.

Full size: 10,000 partitions. 2026-11-18, one server, 2 cores that other programs used too: create 0.3 s; publish 4.7 s;
20 workers join in 4.6 s and ack all messages in 21 s, for 7 s of the server's CPU time; describe 1.6 s (0.8 s of CPU
time); delete 0.3 s. The CPU time of one process is the limit: 0.7 ms for the load, lease and ack of each partition.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog import Outgoing
from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client.connecting.connect import policy_of
from lakelog.client.connecting.servers import servers_of
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually_async

WORKERS = 20
TOPIC, GROUP = "wide", "billing"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("servers", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_one_topic_with_many_partitions(cluster: Cluster, size: Size, servers: int) -> None:
    """Every message is delivered once and acked, and each call takes seconds at most. Servers share the topic."""
    partitions = size.pick(ci=1_000, full=10_000)
    with Fleet(cluster, servers=servers) as fleet:
        times = asyncio.run(run(fleet, partitions))
        leased = [leased_by(port) for port in fleet.ports]
    assert sum(leased) >= partitions and min(leased) > partitions / 20, "each server delivers a part"
    print(f"{partitions} partitions, {servers} servers")
    assert times["create"] < 10
    assert times["consume"] < 60


async def run(fleet: Fleet, partitions: int) -> dict[str, float]:
    times: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.perf_counter()
        used = server_cpu(fleet)
        yield
        times[name] = time.perf_counter() - began
        print(f"{name}: {times[name]:.2f} s, and {server_cpu(fleet) - used:.2f} s of CPU time of the servers")

    seen: Counter[int] = Counter()

    async def handler(value: int) -> None:
        seen[value] += 1

    log, *clients = [client_of(fleet.ports, number) for number in range(WORKERS + 1)]
    try:
        with timed("create"):
            await log.topic(TOPIC).create(partitions=partitions)
        with timed("publish"):
            await log.topic(TOPIC).publish_many(Outgoing(number, partition=number) for number in range(partitions))
        for client in clients:
            client.topic(TOPIC).subscribe(handler, group=GROUP, start_from="earliest", concurrency=50)
        with timed("consume"):
            with timed("join"):
                await asyncio.gather(*(client.start() for client in clients))
            await eventually_async(lambda: len(seen) == partitions, within=100)
            await eventually_async(lambda: sum(map(acked, clients)) >= partitions, within=60)
        with timed("lag"):
            assert await log.topic(TOPIC).lag(GROUP) == 0
        with timed("describe"):
            described = await log.group(GROUP).describe()
        assert len(described.progress) == partitions
        assert sum(part.acked for part in described.progress) == partitions
        assert len(described.members) == WORKERS
        with timed("stop"):
            await asyncio.gather(*(client.stop() for client in clients))
        with timed("delete"):
            await log.topic(TOPIC).delete()
    finally:
        await asyncio.gather(*(client.close() for client in (log, *clients)))
    assert set(seen) == set(range(partitions))
    assert max(seen.values()) == 1, "no message was delivered twice"
    return times


def acked(client: AsyncLakelog) -> int:
    return sum(each.acked for each in client.counts.values())


def client_of(ports: Sequence[int], number: int) -> AsyncLakelog:
    """Return a client whose workers extend their leases in a thread: 20 processes would only measure their starts."""
    turned = [*ports[number % len(ports) :], *ports[: number % len(ports)]]
    url = ",".join(f"http://127.0.0.1:{port}" for port in turned)
    return AsyncLakelog(AsyncHttpTransport(servers_of(url), None), policy_of(30))


def leased_by(port: int) -> int:
    """Return how many messages the server has leased."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        found = re.search(r"^lakelog_leased_messages_total ([\d.e+]+)$", response.read().decode(), re.MULTILINE)
    return int(float(found[1])) if found else 0


def server_cpu(fleet: Fleet) -> float:
    """Return the CPU seconds that the servers have used so far."""
    stats = [Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split() for server in fleet.servers]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")
