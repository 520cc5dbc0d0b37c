"""A compaction driver of the fault scenarios, to be killed: `python -m tests.faults.compact_driver '{…}'`.

It compacts one topic repeatedly until the stop file exists. It skips the election, which only saves work: two of these
drivers at once must do no harm. Without `spark`, tasks run in this process, which starts in a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from lakelog import failpoints
from lakelog.errors import LakelogError
from lakelog.spark.pipelines import compact_tasks, compacting
from tests.faults.tier_driver import unelected
from tests.kit.process import Process, Supervisor
from tests.kit.spark import environment, local_session


class Plan(msgspec.Struct, frozen=True):
    """The settings of one driver."""

    topic: str
    url: str
    file_bytes: int
    stop: str
    spark: bool


def start(supervisor: Supervisor, plan: Plan, points: str = "") -> Process:
    """`points` are fail points of the driver and of its tasks."""
    argv = [sys.executable, "-m", "tests.faults.compact_driver", msgspec.json.encode(plan).decode()]
    env = {**environment(), failpoints.ENVIRONMENT_VARIABLE: points}
    return supervisor.start(argv, env=env, name="compact-driver")


def in_this_process(spark: object, items: Sequence[Any], work: Callable[[Any], Any], kind: type) -> list[Any]:
    return [work(item) for item in items]


def main(plan: Plan) -> None:
    setattr(compacting, "recorded", unelected)  # noqa: B010
    if not plan.spark:
        setattr(compact_tasks, "in_tasks", in_this_process)  # noqa: B010
    conf: Mapping[str, str] = {"spark.lakelog.url": plan.url}
    with local_session(conf) if plan.spark else nullcontext() as spark:
        while not Path(plan.stop).exists():
            try:
                done = compacting.compact(
                    spark,  # type: ignore[arg-type]
                    plan.topic,
                    file_bytes=plan.file_bytes,
                    min_age=0,
                    url=plan.url,
                )
                print(f"{done.replaced} replaced by {done.segments}, {done.taken} taken", flush=True)
            except LakelogError as error:
                print(f"failed: {error.detail}", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Plan))
