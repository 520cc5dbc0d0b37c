"""A hostile tenant in the laboratory: its figures become its history, and its process ends with the fault."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from prove.hostile.tenant import HostileFigures, HostilePlan
from prove.lab.claims import Claims
from prove.lab.faults.tenants import PROJECT, Hostile


class StartedTenant:
    """A process that writes figures when it is terminated, unless it has died."""

    def __init__(self, plan: HostilePlan, figures: HostileFigures | None) -> None:
        self.plan, self._figures, self.is_killed = plan, figures, False

    def terminate(self, *, within: float) -> int:
        if self._figures is not None:
            Path(self.plan.figures).write_bytes(msgspec.json.encode(self._figures))
        return 0

    def kill9(self) -> None:
        self.is_killed = True


def make_topology(folder: Path, figures: HostileFigures | None) -> Any:
    started: list[StartedTenant] = []

    def start(argv: list[str], **_: object) -> StartedTenant:
        started.append(StartedTenant(msgspec.json.decode(argv[-1], type=HostilePlan), figures))
        return started[-1]

    (folder / "history").mkdir()
    return SimpleNamespace(
        claims=Claims(),
        servers=[SimpleNamespace(port=1), SimpleNamespace(port=2)],
        supervisor=SimpleNamespace(start=start),
        new_token=lambda project: f"token of {project}",
        folder=folder,
        path="",
        recorded=[],
        started=started,
    )


def test_the_tenant_has_its_own_project_and_attacks_all_servers(tmp_path: Path) -> None:
    topology = make_topology(tmp_path, HostileFigures(calls=100, limited=7))
    fault = Hostile()
    fault.begin(topology, random.Random(1))
    fault.end(topology)
    (started,) = topology.started
    plan = started.plan
    assert plan.token == f"token of {PROJECT}" and plan.ports == [1, 2]
    assert min(plan.polls, plan.slow, plan.unread, plan.partitions, plan.filters, plan.expansions) > 0
    assert started.is_killed and topology.recorded == [*fault.victims]
    topology.claims.take({PROJECT}, within=0)
    text = (tmp_path / "history" / f"{topology.recorded[0]}.jsonl").read_text()
    assert '"sample":"limited"' in text and '"told":7' in text


def test_a_tenant_without_figures_is_a_failed_fault(tmp_path: Path) -> None:
    topology = make_topology(tmp_path, None)
    fault = Hostile()
    fault.begin(topology, random.Random(1))
    with pytest.raises(FileNotFoundError):
        fault.end(topology)
    assert topology.started[0].is_killed
    topology.claims.take({PROJECT}, within=0)
