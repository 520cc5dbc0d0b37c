"""Faults of resources: a server runs out of file descriptors or memory, or all processors are busy."""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

import psutil

from prove.lab.faults.fault import BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import Topology
    from tests.kit.process import Process

_MIB = 1 << 20


class _Limited(BaseFault):
    """Limits a resource of one server. A server that dies is restarted."""

    counts_by = Evidence.by(Symptom.UNKNOWN, Symptom.REFUSED, after=5.0)
    is_hard = True
    resource: int

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(4.0, 6.0)
        self._server = topology.server(self.claim_one(topology, topology.server_names, chance))
        process = psutil.Process(self._server.process.pid)
        self._before = process.rlimit(self.resource)
        process.rlimit(self.resource, (self.most(process, chance), self._before[1]))

    def most(self, process: psutil.Process, chance: random.Random) -> int:
        """Return the new limit. The server keeps the resources that it already has."""
        raise NotImplementedError

    def end(self, topology: Topology) -> None:
        process = self._server.process
        if process.running:
            psutil.Process(process.pid).rlimit(self.resource, self._before)
        else:
            self.about += ", which died"
            process.restart()
        topology.await_ready(self._server)
        self.release(topology)


class DescriptorsGone(_Limited):
    """The server runs out of file descriptors, so it can neither accept nor open connections."""

    kind = "server out of file descriptors"
    resource = psutil.RLIMIT_NOFILE

    def most(self, process: psutil.Process, chance: random.Random) -> int:
        return max(16, process.num_fds() // 2)


class MemoryGone(_Limited):
    """The server runs out of memory after a few more MiB."""

    kind = "server out of memory"
    resource = psutil.RLIMIT_AS

    def most(self, process: psutil.Process, chance: random.Random) -> int:
        return process.memory_info().vms + chance.choice((1, 4)) * _MIB


class ProcessorsTaken(BaseFault):
    """Other processes with a higher priority use all processors."""

    kind = "processors taken"
    is_hard = True
    counts_by = Evidence.by(Symptom.UNKNOWN, Symptom.REDELIVERED, Symptom.REFUSED, after=5.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(5.0, 7.0)
        self.claim(topology, ["processors"])
        count = 2 * (os.cpu_count() or 1)
        self.about = f"{count} processes"
        argv = ["nice", "-n", "-15", sys.executable, "-c", "while True: pass"]
        self._others: list[Process] = [topology.supervisor.start(argv, name=f"other{each}") for each in range(count)]

    def end(self, topology: Topology) -> None:
        for other in self._others:
            other.kill9()
        self.release(topology)
