"""spark-s3: `format("lakelog")` on an object store with 30 ms per request, compared with the former layout of segments.

The former layout has row groups of 20,000 messages or 4 MiB, and the log does not know their offsets. Both topics are
read by the same code, so the peer also has what readers gained since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from unittest import mock

import lakelog
from benchmarks.corpus import PARTITIONS
from benchmarks.environment import Environment
from benchmarks.filled_topics import tables
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured, to_stderr
from benchmarks.spark_lake import spark_session
from lakelog.model.segment import SealedSegment
from lakelog.segments import writer
from tests.kit.cold import tier_by_hand
from tests.kit.s3 import S3Server
from tests.kit.s3_faults import S3FaultProxy, S3Faults
from tests.kit.size import Size

DELAY_SECONDS = 0.03
NEW, FORMER = "orders", "orders-former"


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with S3Server() as s3, S3FaultProxy(s3.port) as proxy:
        s3.endpoint = proxy.endpoint
        options = {f"store.{name}": text for name, text in s3.options.items()}
        settings = {"LAKELOG_OBJECT_STORE": s3.url, **s3.env}
        with environment.serve(settings) as served, lakelog.connect(served.url) as log:
            _fill(log, plan, NEW)
            environment.notes["segments"] = len(tier_by_hand(log, NEW, options=s3.options))
            with former_layout():
                _fill(log, plan, FORMER)
                tier_by_hand(log, FORMER, options=s3.options)
            proxy.faults = S3Faults(delay_seconds=DELAY_SECONDS)
            to_stderr(f"{plan.messages:,} messages in each topic, every request takes {DELAY_SECONDS * 1000:.0f} ms")
            with spark_session(environment) as spark:

                def read(topic: str, **part: str) -> Measured:
                    source = spark.read.format("lakelog").options(topic=topic, url=served.url, **options, **part)
                    before, start = proxy.requests.total(), perf_counter()
                    source.load().write.format("noop").mode("overwrite").save()
                    seconds = perf_counter() - start
                    return Measured(figure=plan.messages / seconds, notes={"requests": proxy.requests.total() - before})

                # Warm up: otherwise the start of the JVM and of Python workers would be measured.
                read(NEW, endOffsets=json.dumps(dict.fromkeys(range(PARTITIONS), 1000)))
                yield {
                    OURS: lambda: read(NEW),
                    "former": lambda: read(FORMER),
                }


@contextmanager
def former_layout() -> Iterator[None]:
    """Write segments as earlier versions did, within the block."""
    real = writer.SegmentWriter.close

    def close(self: writer.SegmentWriter) -> SealedSegment:
        import msgspec

        return msgspec.structs.replace(real(self), groups=())

    with (
        mock.patch.object(writer, "GROUP_ROWS", 20_000),
        mock.patch.object(writer, "GROUP_BYTES", 4 << 20),
        mock.patch.object(writer.SegmentWriter, "close", close),
    ):
        yield


def _fill(log: lakelog.Lakelog, plan: BenchmarkPlan, name: str) -> None:
    topic = log.topic(name)
    topic.create(partitions=PARTITIONS)
    for table in tables(plan.corpus, plan.messages, len(plan.corpus)):
        topic.publish_columns(table)


BENCHMARK = Benchmark(
    name="spark-s3",
    about='cold history with format("lakelog") from an S3 server with 30 ms per request; peer: the former layout',
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=2_000_000, seconds=0),
    },
    targets={"former": 3.0},
)
