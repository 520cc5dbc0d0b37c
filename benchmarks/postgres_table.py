"""The PostgreSQL baseline for publishing and reading: a plain table with one row per message, without an index.

The variants are the fastest of those tried for each job (binary COPY with given types; arrays for INSERT), so that a
ratio does not flatter us. Values are encoded within the measured time where ours are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import msgspec
import psycopg
import pyarrow as pa

from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.harness import Measured

BATCH = 10_000
"""Rows per commit: the maximum number of messages in a request of our producer."""
_TABLE = 'create table if not exists plain ("partition" integer, key bytea, value bytea, "time" timestamptz)'
_COPY_IN = "copy plain from stdin (format binary)"
_COPY_OUT = "copy plain to stdout (format binary)"
_TYPES = ["int4", "bytea", "bytea", "timestamptz"]
_INSERT = "insert into plain select * from unnest(%b::int4[], %b::bytea[], %b::bytea[], %b::timestamptz[])"


class PlainTable:
    """The plain table in its own database; `with PlainTable.open(url) as plain`."""

    def __init__(self, connection: psycopg.Connection[Any], corpus: Corpus) -> None:
        self._connection = connection
        self._corpus = corpus

    @classmethod
    @contextmanager
    def open(cls, url: str, corpus: Corpus) -> Iterator[PlainTable]:
        with psycopg.connect(url) as connection:
            connection.execute(_TABLE)
            connection.commit()
            yield cls(connection, corpus)

    def empty(self) -> None:
        self._connection.execute("truncate plain")
        self._connection.commit()

    def copy_in(self, messages: int) -> Measured:
        """Measure COPY of rows from objects, one commit per batch."""
        encode, now = msgspec.json.encode, datetime.now(UTC)
        rows = self._rows(messages)
        return self._copy((number % PARTITIONS, key, encode(order), now) for number, (key, order) in rows)

    def copy_in_encoded(self, messages: int) -> Measured:
        """Measure the same from encoded values, like those of an Arrow table."""
        now = datetime.now(UTC)
        pairs = cycle(zip(self._corpus.keys, self._corpus.values, strict=True))
        rows = islice(enumerate(pairs), messages)
        return self._copy((number % PARTITIONS, key, value, now) for number, (key, value) in rows)

    def insert(self, messages: int) -> Measured:
        """Measure INSERT of many rows per statement, one commit per batch."""
        self.empty()
        rows = self._rows(messages)
        now = datetime.now(UTC)
        start = perf_counter()
        with self._connection.cursor() as cursor:
            for _ in range(0, messages, BATCH):
                share = list(islice(rows, BATCH))
                columns = (
                    [number % PARTITIONS for number, _ in share],
                    [key for _, (key, _) in share],
                    [msgspec.json.encode(order) for _, (_, order) in share],
                    [now] * len(share),
                )
                cursor.execute(_INSERT, columns)
                self._connection.commit()
        return Measured(figure=messages / (perf_counter() - start))

    def copy_out_arrow(self) -> Measured:
        """Measure COPY of all rows into Arrow columns."""
        start = perf_counter()
        columns = list(zip(*self._rows_out(), strict=True))
        types = (pa.int32(), pa.binary(), pa.binary(), pa.timestamp("us", tz="UTC"))
        table = pa.table([pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=_TYPES)
        return Measured(figure=table.num_rows / (perf_counter() - start))

    def copy_out_objects(self) -> Measured:
        """Measure COPY of all rows, each value decoded."""
        count = 0
        start = perf_counter()
        for _, _, value, _ in self._rows_out():
            msgspec.json.decode(value)
            count += 1
        return Measured(figure=count / (perf_counter() - start))

    def bytes_on_disk(self) -> int:
        row = self._connection.execute("select pg_total_relation_size('plain')").fetchone()
        assert row is not None
        return int(row[0])

    def _copy(self, rows: Iterator[tuple[int, bytes, bytes, datetime]]) -> Measured:
        self.empty()
        count = 0
        start = perf_counter()
        with self._connection.cursor() as cursor:
            while share := list(islice(rows, BATCH)):
                with cursor.copy(_COPY_IN) as copy:
                    copy.set_types(_TYPES)
                    for row in share:
                        copy.write_row(row)
                self._connection.commit()
                count += len(share)
        return Measured(figure=count / (perf_counter() - start))

    def _rows_out(self) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor() as cursor, cursor.copy(_COPY_OUT) as copy:
            copy.set_types(_TYPES)
            yield from copy.rows()
        self._connection.commit()

    def _rows(self, messages: int) -> Iterator[tuple[int, tuple[bytes, Any]]]:
        corpus = self._corpus
        return islice(enumerate(cycle(zip(corpus.keys, corpus.objects, strict=True))), messages)
