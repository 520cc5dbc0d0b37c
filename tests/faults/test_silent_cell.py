"""An unresponsive PostgreSQL stops only the partitions of its cell: a worker continues with the others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from itertools import pairwise

import psycopg
import pytest

import lakelog
from lakelog.model.message import partition_of_id
from lakelog.storage.postgres import migrate
from tests.kit.fleet import LAKELOG
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor
from tests.kit.size import Size
from tests.kit.waiting import eventually_async

PARTITIONS = 4
BACKLOG = 1500
"""Messages in each partition: all of them always have messages to deliver."""
CONCURRENCY = 32
"""Messages of the unresponsive cell wait for their acks and keep their concurrency slots: some slots must stay free."""
GROUP = "billing"
"""The home cell of the group is the first cell, so that its members can be found."""
NOTICED_SECONDS = 6.0
"""Time until the cell is marked unresponsive, and calls that touched it were repeated."""
GAP_SECONDS = 3.0


@pytest.fixture
def url(database: str, second_database: str) -> Iterator[str]:
    """Yield the URL of a server over two cells."""
    others = {"b": second_database}
    asyncio.run(migrate(database, others))
    supervisor = Supervisor()
    try:
        port = free_port()
        argv = [LAKELOG, "serve", "--port", str(port), "--database-url", database, "--no-auth"]
        env = {"LAKELOG_CELLS": json.dumps(others)}
        found = f"http://127.0.0.1:{port}"
        supervisor.start(argv, env=env, ready=f"{found}/readyz", name="server")
        yield found
    finally:
        supervisor.close()


def partitions_in(database: str) -> set[int]:
    with psycopg.connect(database) as connection:
        return {partition_of_id(pid) for (pid,) in connection.execute("select pid from lakelog.head").fetchall()}


class Handled:
    """When each message was handled, by partition."""

    def __init__(self) -> None:
        self.at: dict[int, dict[int, float]] = {partition: {} for partition in range(PARTITIONS)}
        self.takes_seconds = 0.16

    async def handle(self, value: int, delivery: lakelog.AsyncDelivery[int]) -> None:
        await asyncio.sleep(self.takes_seconds)
        self.at[delivery.partition].setdefault(value, time.monotonic())

    def fewest(self) -> int:
        return min(len(times) for times in self.at.values())

    def longest_gap(self, partition: int, since: float, until: float) -> float:
        times = [since, *sorted(at for at in self.at[partition].values() if since < at < until), until]
        return max(later - earlier for earlier, later in pairwise(times))


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_a_worker_continues_with_responsive_cells(
    url: str, second_database: str, second_cluster: Cluster, size: Size
) -> None:
    """All published messages are delivered when it recovers (L1)."""
    seconds = size.pick(ci=12.0, full=20.0)
    handled = Handled()
    async with lakelog.connect_async(url) as log:
        topic = log.topic("work")
        await topic.create(partitions=PARTITIONS)
        stopped = partitions_in(second_database)
        assert len(stopped) == PARTITIONS / 2
        for partition in range(PARTITIONS):
            await topic.publish_many(lakelog.Outgoing(number, partition=partition) for number in range(BACKLOG))
        topic.subscribe(handled.handle, group=GROUP, concurrency=CONCURRENCY, start_from="earliest")
        await log.start()
        await eventually_async(lambda: handled.fewest() > 20, within=30, what="it works")

        began = time.monotonic()
        second_cluster.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            second_cluster.resume()
        handled.takes_seconds = 0.0
        gaps = {each: handled.longest_gap(each, began + NOTICED_SECONDS, began + seconds) for each in handled.at}
        print(f"the longest gaps while a cell was silent: {gaps}")
        assert all(gaps[each] < GAP_SECONDS for each in gaps if each not in stopped)
        assert all(gaps[each] > seconds - NOTICED_SECONDS - 1 for each in stopped)
        await eventually_async(lambda: handled.fewest() == BACKLOG, within=120, what="everything was handled")
