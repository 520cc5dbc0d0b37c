"""consume-handler-sync: an SDK worker with an empty plain function as handler, and concurrency 256."""

from __future__ import annotations

from typing import Any

from benchmarks.consume_handler import PLANS, alone
from benchmarks.harness import OURS, Benchmark


def _nothing(order: Any) -> None:
    """Do nothing, as the handler."""


BENCHMARK = Benchmark(
    name="consume-handler-sync",
    about="a worker with an empty plain function as handler, concurrency 256, one process",
    unit="messages/s",
    legs=alone(_nothing),
    plans=PLANS,
    targets={OURS: 8_000},
)
