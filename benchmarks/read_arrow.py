"""read-arrow: one client reads a topic whose history is in files, beside plain pyarrow on the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq

import lakelog
from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from tests.kit.cold import tier_by_hand
from tests.kit.size import Size

_COLUMNS = ["partition", "offset", "appended_at", "key", "value", "headers", "content_type"]


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-store-") as folder,
        environment.serve({"LAKELOG_OBJECT_STORE": f"file://{folder}"}) as served,
        filled_topic(served, plan.corpus, plan.messages) as topic,
        lakelog.connect(served.url) as log,
    ):
        segments = tier_by_hand(log, topic.name, segment_bytes=16 << 20)
        files = [str(Path(folder) / segment.path) for segment in segments]
        environment.notes["segments"] = len(segments)
        environment.notes["segment_bytes"] = sum(segment.bytes for segment in segments)

        def measured(rows: int, start: float) -> Measured:
            seconds = perf_counter() - start
            assert rows == plan.messages, f"read {rows} of {plan.messages} messages"
            return Measured(figure=rows / seconds)

        def ours() -> Measured:
            start = perf_counter()
            return measured(topic.read_arrow(direct=True).num_rows, start)

        def scan() -> Measured:
            start = perf_counter()
            return measured(sum(batch.num_rows for batch in topic.scan_arrow(direct=True)), start)

        def plain() -> Measured:
            start = perf_counter()
            # Every file is read completely, with all cores, as `read_table` does by default.
            return measured(pa.concat_tables(pq.read_table(file, columns=_COLUMNS) for file in files).num_rows, start)

        ours()
        yield {OURS: ours, "pyarrow": plain, "scan": scan}


BENCHMARK = Benchmark(
    name="read-arrow",
    about="read_arrow of a topic whose history is in files, beside pyarrow on the same files",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=100_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=1_000_000, seconds=0),
    },
    targets={"pyarrow": 0.5},
)
