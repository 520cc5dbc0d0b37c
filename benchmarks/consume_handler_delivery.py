"""consume-handler-delivery: an SDK worker with an empty async handler that takes a delivery, and concurrency 256."""

from __future__ import annotations

from typing import Any

from benchmarks.consume_handler import PLANS, alone
from benchmarks.harness import OURS, Benchmark


async def _nothing(order: Any, delivery: Any) -> None:
    """Do nothing, as the handler."""


BENCHMARK = Benchmark(
    name="consume-handler-delivery",
    about="a worker with an empty async handler that takes a delivery, concurrency 256, one process",
    unit="messages/s",
    legs=alone(_nothing),
    plans=PLANS,
    targets={OURS: 8_000},
)
