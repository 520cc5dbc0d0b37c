"""The PostgreSQL baseline for consuming: a table of jobs, leased with FOR UPDATE SKIP LOCKED.

A lease is a row lock, an ack is a DELETE, and one commit serves a batch. A lease ends with its connection; there is no
time limit, no retry and no second group. Values are decoded where ours are. Other designs were not tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import asyncpg
import msgspec
import pyarrow as pa

from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.harness import Measured

_TABLE = (
    "create table if not exists jobs "
    '(id bigint generated always as identity primary key, "partition" integer, key bytea, value bytea)'
)
_LEASE = 'select id, "partition", key, value from jobs order by id limit $1 for update skip locked'
_ACK = "delete from jobs where id = any($1)"
_TYPES = {"id": pa.int64(), "partition": pa.int32(), "key": pa.binary(), "value": pa.binary()}
_FILL = 50_000

Rows = Sequence[Any]
Look = Callable[[Rows], None]


class Jobs:
    """The table in its own database, filled again for each leg."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Jobs]:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(_TABLE)
            yield cls(connection)
        finally:
            await connection.close()

    async def fill(self, corpus: Corpus, messages: int) -> None:
        await self._connection.execute("truncate jobs")
        pairs = islice(enumerate(cycle(zip(corpus.keys, corpus.values, strict=True))), messages)
        rows = ((number % PARTITIONS, key, value) for number, (key, value) in pairs)
        while share := list(islice(rows, _FILL)):
            await self._connection.copy_records_to_table("jobs", records=share, columns=["partition", "key", "value"])
        await self._connection.execute("vacuum analyze jobs")

    async def work(self, look: Look, batch: int) -> int:
        """Lease and delete until the table is empty."""
        lease, ack = await self._connection.prepare(_LEASE), await self._connection.prepare(_ACK)
        count = 0
        while True:
            async with self._connection.transaction():
                rows = await lease.fetch(batch)
                if not rows:
                    return count
                look(rows)
                await ack.fetch([row["id"] for row in rows])
            count += len(rows)


def objects(rows: Rows) -> None:
    decode, total = msgspec.json.decode, 0
    for row in rows:
        total += decode(row["value"])["cents"]
    assert total > 0


def columns(rows: Rows) -> None:
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in _TYPES.items()]
    pa.record_batch(arrays, names=list(_TYPES))


def consume(url: str, corpus: Corpus, messages: int, look: Look, batch: int) -> Measured:
    """Fill the table, and measure how one connection consumes it."""

    async def leg() -> Measured:
        async with Jobs.open(url) as jobs:
            await jobs.fill(corpus, messages)
            start = perf_counter()
            count = await jobs.work(look, batch)
            seconds = perf_counter() - start
        assert count == messages, f"consumed {count} of {messages} jobs"
        return Measured(figure=count / seconds)

    return asyncio.run(leg())
