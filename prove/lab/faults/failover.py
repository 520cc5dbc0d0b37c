"""Failover of PostgreSQL: a synchronous standby replaces the primary of a cell."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from prove.lab.faults.fault import BaseFault, Evidence, Symptom
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from prove.lab.topology import Topology
    from tests.kit.postgres import Cluster

_STREAMS = "select count(*) > 0 from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
_SETTLED_SECONDS = 0.5
"""Time until the checkpointer has told all sessions to wait for the standby."""


class Promotion(BaseFault):
    """The primary of a cell is killed or stopped, and its synchronous standby is promoted.

    Links lead to the new primary from then on. A stopped primary is resumed later: no server may return to it.
    """

    kind = "standby promoted"
    counts_by = Evidence.by(Symptom.UNKNOWN, after=10.0)

    def __init__(self) -> None:
        super().__init__()
        self._old: Cluster | None = None
        self._is_stopped = self._is_promoted = False

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(2.0, 4.0)
        name = self.claim_one(topology, topology.cells, chance)
        number = topology.cells.index(name)
        self._old = old = topology.clusters[number]
        self._is_stopped = chance.random() < 0.5
        standby = topology.add_standby(number)
        old.execute("alter system set synchronous_standby_names = '*'")
        old.execute("select pg_reload_conf()")
        eventually(lambda: old.execute(_STREAMS)[0][0], within=30, what="the standby is synchronous")
        time.sleep(_SETTLED_SECONDS)
        eventually(lambda: standby.caught_up_with(old), within=30, what="the standby has everything")
        self.about = f"{name}, primary {'stopped' if self._is_stopped else 'killed'}"
        self.began_ns = time.monotonic_ns()
        self.has_disturbed = True
        if self._is_stopped:
            old.pause()
        else:
            old.kill9()
        topology.promote(number, standby)
        self._is_promoted = True

    def end(self, topology: Topology) -> None:
        if self._old is not None and not self._is_promoted:
            self._old.ensure_running()
            self._old.execute("alter system reset synchronous_standby_names")
            self._old.execute("select pg_reload_conf()")
        elif self._old is not None:
            if self._is_stopped:
                # Sessions that servers still have there wake up, and must not be used.
                self._old.resume()
                time.sleep(_SETTLED_SECONDS)
            self._old.close()
        self.release(topology)
