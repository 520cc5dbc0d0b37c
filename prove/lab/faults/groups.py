"""Faults of groups: members join and leave continually, and partitions are added under load."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prove.lab.faults.fault import MEMBERS, PUBLISHING, BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import Topology


class Churn(BaseFault):
    """Many members join and leave, at least one every 200 ms."""

    kind = "members come and go"
    counts_by = Evidence.by(Symptom.REFUSED, Symptom.UNKNOWN, roles=MEMBERS)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(4.0, 6.0)
        self.claim(topology, ["churn"])
        topology.workload.churn()

    def end(self, topology: Topology) -> None:
        topology.clients.end_roles("churn")
        (topology.folder / "stop" / "churn").unlink()
        self.release(topology)


class PartitionsAdded(BaseFault):
    """Partitions are added.

    Producers with sequence numbers are refused and choose again, and members get more partitions.
    """

    kind = "partitions added"
    counts_by = Evidence.by(Symptom.REFUSED, roles=PUBLISHING | MEMBERS, after=4.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 1.0
        self.claim(topology, ["partitions"])
        self.about = topology.workload.add_partition()
