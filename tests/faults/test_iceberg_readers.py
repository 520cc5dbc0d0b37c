"""Engines read the Iceberg table of a topic while tiering, compaction, retention and sweeps change its files.

Every read must be whole: the messages of the log for the offsets that its snapshot covers, and no missing file. Full
size: a million messages, 100 reads by PyIceberg and DuckDB, half of them with the hot rest from the server, and 20 by
Spark with Iceberg's runtime.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelog
from lakelog.model.message import partition_id
from lakelog.spark.pipelines import compact_tasks
from lakelog.spark.pipelines.compacting import compact
from lakelog.spark.pipelines.sweeping import sweep
from lakelog.storage.postgres import open_cells
from tests.acceptance.test_iceberg import catalog, duck, fleet, log, project, s3, url_of
from tests.faults.compact_driver import in_this_process
from tests.faults.tier_load import Background
from tests.kit.cold import tier_by_hand
from tests.kit.engines import NAMESPACE, IcebergSpark, has_spark
from tests.kit.fleet import Fleet
from tests.kit.progress import tell
from tests.kit.s3 import S3Server
from tests.kit.size import Size

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.catalog.rest import RestCatalog

__all__ = ["catalog", "duck", "fleet", "log", "s3"]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

TOPIC, PARTITIONS = "read", 2
SELECTED = ("partition", "offset", "value")
FILE_BYTES = 100_000
"""The size of compacted files: small, so that retention removes some from the table."""
ROUNDS = 5
"""Rounds of changes that include each kind of them."""
QUERY = f'SELECT partition, "offset", value FROM lake."{NAMESPACE}".{TOPIC}'


class Publishing(Background):
    """Publishes the numbers from `start` on, a few at a time."""

    def __init__(self, fleet: Fleet, start: int) -> None:
        super().__init__("publishing")
        self._fleet, self._next = fleet, start

    def work(self) -> None:
        with lakelog.connect(url_of(self._fleet), token=self._fleet.token, timeout=120) as log:
            while not self._ended.wait(0.2):
                log.topic(TOPIC).publish_columns(numbered(range(self._next, self._next + 40)))
                self._next += 40


class Writing(Background):
    """Tiers, compacts, raises the log start, and keeps the table up to date; a round begins every some seconds."""

    def __init__(self, fleet: Fleet, messages: int, every: float) -> None:
        super().__init__("writing")
        self._fleet, self._messages, self._every = fleet, messages, every
        self.rounds = self.compacted = self.swept = 0

    def work(self) -> None:
        with lakelog.connect(url_of(self._fleet), token=self._fleet.token, timeout=120) as log:
            while not self._ended.is_set():
                began = time.monotonic()
                self._round(log)
                self.rounds += 1
                self._ended.wait(began + self._every - time.monotonic())

    def _round(self, log: lakelog.Lakelog) -> None:
        tier_by_hand(log, TOPIC, segment_bytes=100_000)
        project(log, TOPIC)
        url, token = url_of(self._fleet), self._fleet.token
        if self.rounds % 3 == 1:
            done = compact(None, TOPIC, file_bytes=FILE_BYTES, min_age=0, url=url, token=token)  # type: ignore[arg-type]
            self.compacted += done.replaced
        if self.rounds % 5 == 2:
            asyncio.run(self._retain(log))
        if self.rounds % 5 == 3:
            self.swept += sweep(min_age=timedelta(0), url=url, token=token).deleted

    async def _retain(self, log: lakelog.Lakelog) -> None:
        """Raise the log start by a hundredth of the messages, as retention does."""
        info = log.topic(TOPIC).describe()
        starts = [(partition_id(info.incarnation, p.partition), p.log_start) for p in info.partition_list]
        store = (await open_cells(self._fleet.url))[0]
        try:
            await store.log_start_raise([(pid, start + self._messages // 100) for pid, start in starts])
        finally:
            await store.close()


class Truth:
    """The numbers of the log, by partition and offset, as the server returns them."""

    def __init__(self, log: lakelog.Lakelog) -> None:
        self._log = log
        self._numbers = [np.empty(0, np.int64)] * PARTITIONS

    def follow(self) -> None:
        """Read what was published since the last call."""
        for partition, end in self._log.lake.watermarks(TOPIC).ends.items():
            start = len(self._numbers[partition])
            parts = [numbers_of(batch) for batch in self._log.lake.read_range(TOPIC, partition, start, end)]
            self._numbers[partition] = np.concatenate([self._numbers[partition], *parts])

    def check(self, rows: pa.Table) -> dict[int, tuple[int, int]]:
        """Compare rows with the log. Return their range by partition."""
        found = {}
        partitions, offsets = (rows.column(name).to_numpy() for name in ("partition", "offset"))
        numbers = numbers_of(rows)
        for partition, known in enumerate(self._numbers):
            order = np.argsort(offsets[partitions == partition])
            places = offsets[partitions == partition][order]
            assert (np.diff(places) == 1).all(), "no gap, and each message once"
            assert np.array_equal(numbers[partitions == partition][order], known[places])
            found[partition] = (int(places[0]), int(places[-1]) + 1)
        return found

    def check_with_rest(self, rows: pa.Table, read_at: float) -> float:
        """Check that the table and the rest of the log are the whole log. Return the age of the first message of the
        rest when the table was read, in seconds.
        """
        ends, lag = self._log.lake.watermarks(TOPIC).ends, 0.0
        parts = [rows]
        for partition, (_, end) in self.check(rows).items():
            for batch in self._log.lake.read_range(TOPIC, partition, end, ends[partition]):
                parts.append(pa.table([batch.column(name) for name in SELECTED], names=SELECTED))
                lag = max(lag, read_at - batch.column("appended_at")[0].as_py().timestamp())
        self.follow()
        found = self.check(pa.concat_tables(part.cast(rows.schema) for part in parts))
        assert {partition: end for partition, (_, end) in found.items()} == ends
        return lag


def numbered(numbers: range) -> pa.Table:
    values = pa.array([str(each) for each in numbers]).cast(pa.binary())
    return pa.table({"key": values, "value": values})


def numbers_of(rows: pa.Table | pa.RecordBatch) -> np.ndarray:
    return np.asarray(pc.cast(pc.cast(rows.column("value"), pa.string()), pa.int64()))


def test_engines_read_what_the_log_has_while_its_files_are_replaced(
    fleet: Fleet,
    s3: S3Server,
    log: lakelog.Lakelog,
    catalog: RestCatalog,
    duck: duckdb.DuckDBPyConnection,
    size: Size,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S22, S25, S26."""
    monkeypatch.setattr(compact_tasks, "in_tasks", in_this_process)
    messages, reads, every = size.pick(ci=(10_000, 6, 0.5), full=(1_000_000, 100, 5.0))
    log.topic(TOPIC).create(PARTITIONS)
    for start in range(0, messages, 10_000):
        log.topic(TOPIC).publish_columns(numbered(range(start, start + 10_000)))
    tier_by_hand(log, TOPIC, segment_bytes=100_000)
    project(log, TOPIC)
    writing, truth = Writing(fleet, messages, every), Truth(log)
    threads: list[Background] = [Publishing(fleet, messages), writing]
    lags: list[float] = []
    for thread in threads:
        thread.start()
    try:
        truth.follow()
        with spark_of(fleet, s3, tmp_path) as spark:
            for number in takewhile(lambda number: number < reads or writing.rounds < ROUNDS, count()):
                read_at = time.time()
                rows, covered = read_by_pyiceberg(catalog)
                truth.follow()
                assert truth.check(rows) == covered
                if number % 2:
                    lags.append(truth.check_with_rest(rows, read_at))
                newer = [duck.execute(QUERY).to_arrow_table()]
                if spark is not None and number % 5 == 0:
                    newer.append(spark.read())
                truth.follow()
                for found in map(truth.check, newer):
                    assert all(found[each][1] >= covered[each][1] for each in covered), "never an older table"
                for thread in threads:
                    thread.check()
                tell(f"read {number}, round {writing.rounds}, {covered}")
    finally:
        for thread in threads:
            thread.end(within=600)
    starts = {each.partition: each.log_start for each in log.topic(TOPIC).describe().partition_list}
    tell(
        f"{number + 1} reads, {writing.rounds} rounds, log starts {starts}, {writing.compacted} files compacted, "
        f"{writing.swept} swept; lag {np.median(lags):.2f} s, at most {max(lags):.2f} s"
    )
    assert all(starts.values()) and writing.compacted


def spark_of(fleet: Fleet, s3: S3Server, folder: Path) -> AbstractContextManager[IcebergSpark | None]:
    assert fleet.token is not None
    if not has_spark():
        return nullcontext()
    return IcebergSpark(QUERY.replace('"', "`"), folder, url_of(fleet), fleet.token, s3)


def read_by_pyiceberg(catalog: RestCatalog) -> tuple[pa.Table, dict[int, tuple[int, int]]]:
    """Return the rows of a snapshot, and the range that it covers by partition."""
    table = catalog.load_table((NAMESPACE, TOPIC))
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    covered = json.loads(snapshot.summary.additional_properties["lakelog.covered"])
    rows = table.scan(selected_fields=SELECTED).to_arrow()
    return rows, {int(each): (ranges[0][0], ranges[-1][1]) for each, ranges in covered.items()}
