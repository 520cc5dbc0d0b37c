"""spark-latency: 10 messages every 0.3 s, from their publish call to the end of their micro-batch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np

import lakelog
from benchmarks.environment import Environment, Served
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.spark_streams import session, streaming
from tests.kit.size import Size
from tests.kit.waiting import eventually

COUNT, EVERY_SECONDS = 10, 0.3
WARM_SECONDS = 90.0


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes["messages_of_a_call"] = COUNT
    with environment.serve() as served:
        yield {
            OURS: lambda: _measure(served, plan, configured=True),
            "without_configure": lambda: _measure(served, plan, configured=False),
        }


def _measure(served: Served, plan: BenchmarkPlan, *, configured: bool) -> Measured:
    warm = WARM_SECONDS if plan.size is Size.FULL else 1.0
    with (
        session(configured=configured) as spark,
        fresh_topic(served) as topic,
        streaming(spark, served.url, topic.name, f"latency-{topic.name}") as query,
    ):
        calls = _publish(topic, plan, warm + plan.seconds)
        eventually(lambda: _reached(json.loads(query.recentProgress[-1].json)) >= calls[-1][1], within=30)
        taken = latencies(calls, [json.loads(progress.json) for progress in query.recentProgress])
    measured = np.array(taken[int(warm / EVERY_SECONDS) :])
    return Measured(
        figure=float(np.percentile(measured, 50)),
        notes={"p99_ms": float(np.percentile(measured, 99)), "worst_ms": float(measured.max())},
    )


def _publish(topic: Any, plan: BenchmarkPlan, seconds: float) -> list[tuple[float, int]]:
    """Return when each call began, by the clock that Spark also uses, and the total number of messages sent by then."""
    values = plan.corpus.objects[:COUNT]
    calls: list[tuple[float, int]] = []
    start = time.time()
    while (due := start + len(calls) * EVERY_SECONDS) < start + seconds:
        time.sleep(max(0.0, due - time.time()))
        calls.append((time.time(), (len(calls) + 1) * COUNT))
        topic.publish_many([lakelog.Outgoing(value) for value in values])
    return calls


def latencies(calls: Sequence[tuple[float, int]], progresses: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the milliseconds from each call to the end of the first micro-batch that has all its messages."""
    ends = [(_ended(progress), _reached(progress)) for progress in progresses]
    found = []
    for began, count in calls:
        ended = next(ended for ended, reached in ends if reached >= count)
        found.append((ended - began) * 1000)
    return found


def _ended(progress: Mapping[str, Any]) -> float:
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + float(progress["durationMs"]["triggerExecution"]) / 1000


def _reached(progress: Mapping[str, Any]) -> int:
    """Return the number of messages read up to this micro-batch."""
    end = progress["sources"][0]["endOffset"]
    return sum((end or {}).get("end", {}).values())


BENCHMARK = Benchmark(
    name="spark-latency",
    about="10 messages every 0.3 s, publish to the end of the micro-batch, a stream with a group, local[2]",
    unit="ms (p50)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=3),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=0, seconds=30),
    },
    targets={OURS: 90, "p99_ms": 250},
    less_is_better=True,
)
