"""The fail points that faults of tiering set for drivers, and their removal."""

from __future__ import annotations

import inspect
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog import failpoints
from lakelog.spark.pipelines import tier_tasks, tiering
from prove.lab.claims import Busy, Claims
from prove.lab.faults import tiering as tiering_faults
from prove.lab.load import tiering_driver


class DriverProcesses:
    """One busy driver, or none."""

    def __init__(self, *processes: Any) -> None:
        self.processes = list(processes)

    def of(self, *roles: str) -> list[Any]:
        return list(self.processes)

    def await_busy(self, client: Any, *, within: float) -> bool:
        return bool(client.running)


@pytest.fixture
def topology(tmp_path: Path) -> Any:
    (tmp_path / tiering_driver.POINTS).mkdir()
    client = SimpleNamespace(name="driver-1", running=True, pid=0)
    return SimpleNamespace(folder=tmp_path, claims=Claims(), clients=DriverProcesses(client), servers=[])


def test_points_are_told_to_one_driver_and_taken_back(topology: Any) -> None:
    fault = tiering_faults.TaskKilled()
    fault.begin(topology, random.Random(1))
    assert (topology.folder / tiering_driver.POINTS / "driver-1").read_text() == "tier.after_put=kill"
    assert fault.victims == {"driver-1"}
    fault.end(topology)
    assert not list((topology.folder / tiering_driver.POINTS).iterdir())
    topology.claims.take(["tiering"], within=0)


def test_without_a_driver_at_work_there_is_no_fault(topology: Any) -> None:
    topology.clients.processes[0].running = False
    with pytest.raises(Busy):
        tiering_faults.TaskKilled().begin(topology, random.Random(1))


@pytest.mark.parametrize("kind", [tiering_faults.TwoDrivers, tiering_faults.RegistrationUntold])
def test_rivals_work_until_the_fault_ends(topology: Any, kind: type[tiering_faults.TwoDrivers]) -> None:
    fault = kind()
    fault.begin(topology, random.Random(1))
    assert (topology.folder / tiering_driver.POINTS / tiering_driver.UNELECTED).exists()
    fault.end(topology)
    assert not list((topology.folder / tiering_driver.POINTS).iterdir())


@pytest.mark.parametrize("points", [*tiering_faults.DRIVER_POINTS.values(), tiering_faults.TwoDrivers.points])
def test_every_point_is_one_of_the_pipeline_s(points: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "armed", {})
    failpoints.arm(points)
    code = inspect.getsource(tiering) + inspect.getsource(tier_tasks)
    assert all(f'failpoints.hit("{name}")' in code for name in failpoints.armed)
