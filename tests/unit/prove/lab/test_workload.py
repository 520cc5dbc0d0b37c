"""The workload of a run: every client has a plan that its process can read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from prove.lab.load.plan import WorkerPlan
from prove.lab.sizes import SIZES
from prove.lab.workload import Workload
from prove.soak.command import _size
from prove.soak.workload import SoakWorkload

SCENE: Any = SimpleNamespace(folder=Path("run"), client_ports=[1, 2, 3])
STAFFS = {name: Workload(SCENE, size, 1) for name, size in SIZES.items()}


@pytest.mark.parametrize("workload", [*STAFFS.values(), SoakWorkload(SCENE, _size(), 1, keep_seconds=60.0)])
def test_workers_of_every_group_have_a_plan(workload: Workload) -> None:
    for group in workload.groups:
        made = workload._worker(group)("worker-1", 1, "")
        plan = msgspec.json.decode(msgspec.json.encode(made), type=WorkerPlan)
        assert (plan.lease_ms, plan.max_messages) == (group.lease_ms, group.max_messages)
        assert plan.settings.get("filter") == group.filter
