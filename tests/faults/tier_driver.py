"""A tiering driver of the fault scenarios, to be killed: `python -m tests.faults.tier_driver '{…}'`.

It tiers one topic repeatedly until the stop file exists. It skips the election, which only saves work: two of these
drivers at once must do no harm.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from lakelog import Lakelog, failpoints
from lakelog.errors import LakelogError
from lakelog.spark.pipelines import tiering
from tests.kit.process import Process, Supervisor
from tests.kit.spark import environment, local_session


class Plan(msgspec.Struct, frozen=True):
    """The settings of one driver."""

    topic: str
    url: str
    segment_bytes: int
    min_age: float
    stop: str


class Unelected:
    """A run record that is not stored."""

    def update(self, progress: Mapping[str, int]) -> None: ...


@contextmanager
def unelected(log: Lakelog, pipeline: str, topic: str | None = None) -> Iterator[Any]:
    yield Unelected()


def start(supervisor: Supervisor, plan: Plan, env: Mapping[str, str], points: str = "") -> Process:
    """`points` are fail points of the driver and of its tasks."""
    argv = [sys.executable, "-m", "tests.faults.tier_driver", msgspec.json.encode(plan).decode()]
    return supervisor.start(
        argv, env={**environment(), **env, failpoints.ENVIRONMENT_VARIABLE: points}, name="tier-driver"
    )


def main(plan: Plan) -> None:
    setattr(tiering, "recorded", unelected)  # noqa: B010
    with local_session({"spark.lakelog.url": plan.url}) as spark:
        print("ready", flush=True)
        while not Path(plan.stop).exists():
            try:
                done = tiering.tier(spark, plan.topic, segment_bytes=plan.segment_bytes, min_age=plan.min_age)
                print(f"tiered {done.messages} messages, {done.taken} taken, {done.dropped} dropped", flush=True)
            except LakelogError as error:
                print(f"failed: {error.detail}", flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Plan))
