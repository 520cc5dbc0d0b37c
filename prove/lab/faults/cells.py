"""Faults of cells: a server starts while it cannot reach one of them."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from prove.history.recorder import HistoryRecorder
from prove.lab.faults.fault import BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import LabServer, Topology

READY_SECONDS = 20.0
"""The longest time from the start of a server until it is ready without the cell (L9). Most of it is the start of the
process, which takes seconds on a busy machine.
"""


class CellMissing(BaseFault):
    """A server is killed and starts again while its link to a cell is down or does not respond.

    The server must become ready and serve the partitions of the other cell. The catalog is in the first cell, so only
    the second one can be missing.
    """

    kind = "cell missing at start"
    counts_by = Evidence.by(Symptom.UNKNOWN, Symptom.REFUSED, after=5.0)

    def __init__(self) -> None:
        super().__init__()
        self._server: LabServer | None = None

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(2.0, 5.0)
        name = self.target or chance.choice(topology.server_names)
        # Without the catalog, no server becomes ready; a fault of either cell would hide what this one shows.
        self.claim(topology, [name, *topology.cells], within=30.0)
        server = self._server = topology.server(name)
        link = server.database_links[-1]
        is_cut = chance.random() < 0.5
        self.about = f"{name} without {topology.cells[-1]}, {'cut off' if is_cut else 'half-open'}"
        self.has_disturbed = True
        server.process.kill9()
        if is_cut:
            link.cut_off()
        else:
            link.half_open()
        server.process.start()
        _record(topology, server, _seconds_until_ready(topology, server))

    def end(self, topology: Topology) -> None:
        if self._server is not None:
            self._server.database_links[-1].pass_through()
            if not self._server.process.running:
                self._server.process.start()
                topology.await_ready(self._server)
        self.release(topology)


def _seconds_until_ready(topology: Topology, server: LabServer) -> float | None:
    """Return how long the server needed; None if it ended, or took much longer than it may."""
    began = time.monotonic()
    try:
        topology.await_ready(server, within=2 * READY_SECONDS)
    except AssertionError:
        return None
    return time.monotonic() - began


def _record(topology: Topology, server: LabServer, seconds: float | None) -> None:
    """Record the start for L9."""
    name = f"{server.name}-start-{time.monotonic_ns()}"
    with HistoryRecorder(topology.folder / "history", name) as recorder:
        told = 0 if seconds is None else round(1000 * seconds)
        recorder.sample("beside", told, round(1000 * READY_SECONDS), topic=name, group=name, stale=seconds is None)
    topology.recorded.append(name)
