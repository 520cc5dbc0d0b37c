"""Runs the checks as a Spark job, for runs with millions of rows. Rows are sent between parts as chunks of columns.

First, one task per file reads the histories. Then attempts are grouped by identity, and attempts and observations by
value, which locates attempts of unknown outcome. Finally, each partition, process and group is judged. Executors need
this package on their path and access to the run's folder.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from prove.checker.catalog import INVARIANTS
from prove.checker.column_chunks import RESULT, SCHEMA, SUMMARY, arrived, chunk, chunks, gathered, scattered, unpacked
from prove.checker.invariant import CheckScope, Invariant, RunInfo
from prove.checker.judgement import Judgement, Tallies, ViolationTally, judgements, tallied
from prove.checker.scopes import with_places, with_shared
from prove.checker.spark_routing import Routes, RoutingSummary
from prove.history import truth
from prove.history.file_reader import FileReader
from prove.history.loading import ROW_BYTES, RunFiles, open_run
from prove.history.tables import TableColumns, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]
Step = Callable[[Batches], Iterator[pa.RecordBatch]]

ROWS_OF_A_BUCKET = 750_000
ROWS_OF_A_TASK = 500_000
CONF = {
    "spark.driver.memory": "4g",
    # A chunk has megabytes, so the size of what Spark passes to Python must be limited in bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),
    # Spark's estimate would merge the small parts of a run, which are the expensive ones.
    "spark.sql.adaptive.enabled": "false",
    "spark.python.worker.reuse": "true",
    # The job takes minutes, so show a progress bar.
    "spark.ui.showConsoleProgress": "true",
    "spark.ui.consoleProgress.update.interval": "5000",
}


def judge_folder(folder: Path, *, master: str = "local[2]") -> dict[str, Judgement]:
    """Judge a folder in a new Spark session."""
    from tests.kit.spark import local_session

    with local_session(CONF, master=master) as session:
        return judge_on(session, folder)


def judge_on(session: SparkSession, folder: Path) -> dict[str, Judgement]:
    """Return the judgements by invariant name."""
    from pyspark import StorageLevel

    source = open_run(folder.resolve())
    if not source.files and not source.parts:
        return judgements({}, source.cut or ("there is nothing to judge",), INVARIANTS)
    tasks = _tasks(source, 2 * session.sparkContext.defaultParallelism)
    loaded = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(Loading(source, tasks), SCHEMA)
    loaded = loaded.persist(StorageLevel.DISK_ONLY)
    try:
        summary = _summary(loaded)
        run = replace(source.run, names={**summary.names, **source.run.names})
        found = _judged(loaded, run, Routes(summary, buckets=_buckets(session, summary.rows)))
    finally:
        loaded.unpersist()
    return judgements(found, (*source.cut, *summary.cut), INVARIANTS)


def _tasks(source: RunFiles, least: int) -> list[list[int]]:
    """Return the files and truth parts that each task reads, by number, with about equal sizes.

    A run may leave thousands of small files, and one task per file would cost more than reading it.
    """
    sizes = [path.stat().st_size // ROW_BYTES for path in source.files] + [part.rows for part in source.parts]
    count = min(len(sizes), max(least, sum(sizes) // ROWS_OF_A_TASK))
    filled = [(0, task) for task in range(count)]
    tasks: list[list[int]] = [[] for _ in range(count)]
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        rows, task = heapq.heappop(filled)
        tasks[task].append(number)
        heapq.heappush(filled, (rows + sizes[number], task))
    return tasks


def _summary(loaded: DataFrame) -> RoutingSummary:
    summary = RoutingSummary()
    for row in loaded.where(f"name = '{SUMMARY}'").select("data").collect():
        summary.add(msgspec.json.decode(bytes(row.data), type=RoutingSummary))
    return summary


def _judged(loaded: DataFrame, run: RunInfo, routes: Routes) -> Tallies:
    def moved(rows: DataFrame, parts: int, step: Step) -> DataFrame:
        return rows.repartitionById(parts, "part").mapInArrow(step, SCHEMA)

    attempts = loaded.where("name IN ('attempt', 'seen')").mapInArrow(ToIdentities(routes), SCHEMA)
    attempts = moved(attempts, routes.buckets, Identities(run, routes))
    values = loaded.where("name IN ('seen', 'dead')").mapInArrow(ToValues(routes), SCHEMA)
    attempts = moved(attempts.union(values), routes.buckets, Values(run, routes))
    others = loaded.where(f"name NOT IN ('attempt', '{SUMMARY}')").mapInArrow(ToLast(routes), SCHEMA)
    results = moved(attempts.union(others), routes.parts, Last(run, routes))
    found: Tallies = {}
    for row in results.select("data").collect():
        for name, tally in msgspec.json.decode(bytes(row.data), type=dict[str, ViolationTally]).items():
            found.setdefault(name, ViolationTally()).add(tally)
    return found


def _buckets(session: SparkSession, rows: int) -> int:
    return max(session.sparkContext.defaultParallelism, rows // ROWS_OF_A_BUCKET + 1)


# Steps --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loading:
    """Reads the files and truth parts of one task."""

    source: RunFiles
    tasks: Sequence[Sequence[int]]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for number in self.tasks[task]:
                    yield from self._load(number)

    def _load(self, number: int) -> Iterator[pa.RecordBatch]:
        summary = RoutingSummary()
        for columns in self._columns(number, summary):
            summary.take(columns)
            yield from chunks(0, columns)
        yield chunk(0, SUMMARY, msgspec.json.encode(summary))

    def _columns(self, number: int, summary: RoutingSummary) -> Iterator[TableColumns]:
        files = self.source.files
        if number >= len(files):
            yield truth.read_part(self.source.parts[number - len(files)])
            return
        reader = FileReader(files[number], crashed=files[number].stem in self.source.crashed)
        yield from reader.chunks()
        summary.cut += reader.cut
        summary.names |= reader.names


@dataclass(frozen=True)
class ToIdentities:
    """Sends attempts, and observations with an identity, to the part of that identity."""

    routes: Routes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for columns in _each(batches):
            yield from scattered(columns, self.routes.by_identity(columns))


@dataclass(frozen=True)
class ToValues:
    """Sends observations and redriven copies to the part of their value."""

    routes: Routes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for columns in _each(batches):
            yield from scattered(columns, self.routes.by_value(columns))


@dataclass(frozen=True)
class ToLast:
    """Sends everything but attempts to the part that judges it."""

    routes: Routes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for columns in _each(batches):
            yield from self.routes.last(columns)


@dataclass(frozen=True)
class Identities:
    """Judges all rows of some identities, and sends the attempts to the parts by value."""

    run: RunInfo
    routes: Routes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        tables, results = gathered(batches)
        yield from _results(results, tallied(tables, self.run, _of(CheckScope.IDENTITY)))
        attempts = tables["attempt"]
        if len(attempts):
            yield from scattered(with_shared(attempts, by=("identity",)), self.routes.by_value(attempts))


@dataclass(frozen=True)
class Values:
    """Judges all rows of some values, locates the attempts, and sends them to the last parts."""

    run: RunInfo
    routes: Routes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        tables, results = gathered(batches)
        attempts = with_places(with_shared(tables["attempt"], by=("hash",)), tables["seen"])
        tables = Tables(by_name={**tables.by_name, "attempt": attempts})
        yield from _results(results, tallied(tables, self.run, _of(CheckScope.VALUE)))
        yield from self.routes.last(attempts)


@dataclass(frozen=True)
class Last:
    """Judges a partition, some processes, some groups, or the run."""

    run: RunInfo
    routes: Routes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        tables, results = gathered(batches)
        context = TaskContext.get()
        assert context is not None
        scopes = self.routes.scopes(context.partitionId())
        yield from _results(results, tallied(tables, self.run, _of(*scopes), groups=self.routes.leasing))


def _each(batches: Batches) -> Iterator[TableColumns]:
    return (unpacked(name, data) for name, data in arrived(batches))


def _of(*scopes: CheckScope) -> list[Invariant]:
    return [each for each in INVARIANTS if each.scope in scopes]


def _results(earlier: Sequence[bytes], found: Tallies) -> Iterator[pa.RecordBatch]:
    """Yield the findings, which pass through later parts to the end."""
    for data in (*earlier, msgspec.json.encode(found)):
        yield chunk(0, RESULT, data)
