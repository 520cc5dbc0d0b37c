"""Faults of tenants: one of them takes as much of the servers as they let it have."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from prove.history.recorder import HistoryRecorder
from prove.hostile.tenant import HostileFigures, HostilePlan
from prove.lab.faults.fault import BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import Topology
    from tests.kit.process import Process

PROJECT = "hostile"
END_SECONDS = 60.0
"""The longest time in which the tenant closes its connections and deletes its topics."""


class Hostile(BaseFault):
    """A tenant of its own environment sends costly filters, expanding batches, many polls and slow connections, and
    creates many partitions, on all servers at the same time.

    The other tenants must not notice more than latency. The fault counts if a limit refused or ended a part of it.
    """

    kind = "hostile tenant"
    is_hard = True
    counts_by = Evidence.by(Symptom.LIMITED)

    def __init__(self) -> None:
        super().__init__()
        self._process: Process | None = None

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(12.0, 20.0)
        # Two hostile tenants would share topics.
        self.claim(topology, [PROJECT])
        self._name = f"hostile-{self.began_ns}"
        self._figures = topology.folder / f"{self._name}.json"
        plan = HostilePlan(
            token=topology.new_token(PROJECT),
            ports=[server.port for server in topology.servers],
            figures=str(self._figures),
            polls=chance.randint(300, 1500),
            slow=chance.randint(100, 500),
            unread=chance.randint(4, 40),
            partitions=chance.randint(100, 1000),
            filters=chance.randint(1, 4),
            expansions=chance.randint(1, 2),
            seed=chance.randrange(1 << 30),
        )
        self.about = f"{plan.polls} polls, {plan.slow} slow connections, {plan.partitions} partitions"
        argv = [sys.executable, "-m", "prove.hostile.tenant", msgspec.json.encode(plan).decode()]
        self.victims = frozenset({self._name})
        self._process = topology.supervisor.start(argv, env={"PYTHONPATH": topology.path}, name=self._name)

    def end(self, topology: Topology) -> None:
        try:
            if self._process is not None:
                self._process.terminate(within=END_SECONDS)
                _record(topology, self._name, self._figures)
        finally:
            if self._process is not None:
                self._process.kill9()
            self.release(topology)


def _record(topology: Topology, name: str, path: Path) -> None:
    """Record the figures of the tenant as its history."""
    figures = msgspec.json.decode(path.read_bytes(), type=HostileFigures)
    with HistoryRecorder(topology.folder / "history", name) as recorder:
        recorder.sample("limited", figures.limited, figures.calls + figures.opened)
    topology.recorded.append(name)
