"""consume-handler-delivery: a worker of the SDK with an async handler that takes a delivery, empty, 256 at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.consume_handler import PLANS, alone
from benchmarks.harness import OURS, Benchmark


async def _nothing(order: Any, delivery: Any) -> None:
    """What the handler does."""


BENCHMARK = Benchmark(
    name="consume-handler-delivery",
    about="a worker with an async handler that takes a delivery, empty, 256 at a time, one process",
    unit="messages/s",
    legs=alone(_nothing),
    plans=PLANS,
    targets={OURS: 8_000},
)
