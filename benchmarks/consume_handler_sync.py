"""consume-handler-sync: a worker of the SDK with a handler that is a plain function, empty, 256 at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.consume_handler import PLANS, alone
from benchmarks.harness import OURS, Benchmark


def _nothing(order: Any) -> None:
    """What the handler does."""


BENCHMARK = Benchmark(
    name="consume-handler-sync",
    about="a worker with a handler that is a plain function, empty, 256 at a time, one process",
    unit="messages/s",
    legs=alone(_nothing),
    plans=PLANS,
    targets={OURS: 8_000},
)
