"""Faults of clients: killed while they hold work, or stopped and resumed, so that their answers come too late."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.client_processes import ClientProcess
from prove.lab.faults.fault import MEMBERS, PUBLISHING, SHORTLY, TIERING, WORKING, BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import Topology


class _OfClient(BaseFault):
    """Affects one client of some roles, while it is busy."""

    roles = WORKING

    def choose(self, topology: Topology, chance: random.Random, *, busy: bool = True) -> ClientProcess:
        for _ in range(8):
            client = topology.clients.pick(chance, *sorted(self.roles))
            if not busy or topology.clients.await_busy(client, within=1.0):
                break
        else:
            raise Busy(f"no {' or '.join(sorted(self.roles))} has work to do")
        self.claim(topology, [client.name])
        self.about, self.victims = client.name, frozenset({client.name})
        return client


class WorkerKilled(_OfClient):
    """A worker is killed with SIGKILL while it holds leases. Others get the messages when the leases end."""

    kind = "worker killed"
    # Another worker gets its messages.
    counts_by = Evidence.by(Symptom.REDELIVERED, roles=WORKING, after=20.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance))


class WorkerStopped(_OfClient):
    """A worker is stopped for longer than its leases and then resumed. It answers messages that it no longer holds."""

    kind = "worker stopped, then answers"
    counts_by = Evidence.by(Symptom.REFUSED, Symptom.REDELIVERED, roles=WORKING, after=8.0)
    # Their leases are shorter than the stop.
    roles = SHORTLY

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(7.0, 8.5)
        self._client = self.choose(topology, chance)
        topology.clients.stop(self._client)

    def end(self, topology: Topology) -> None:
        topology.clients.cont(self._client)
        self.release(topology)


class MemberStopped(WorkerStopped):
    """A member is stopped for longer than its session and then resumed.

    It commits in partitions that others own now.
    """

    kind = "member stopped, then commits"
    counts_by = Evidence.by(Symptom.REFUSED, roles=MEMBERS, after=8.0)
    roles = frozenset({"indexing"})


class ProducerKilled(_OfClient):
    """A producer is killed with SIGKILL during a call. Another process repeats the batch at another server."""

    kind = "producer killed after sending"
    counts_by = Evidence.by(Symptom.UNKNOWN, roles=PUBLISHING)
    roles = PUBLISHING

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance))


class TieringDriverKilled(_OfClient):
    """The tiering driver is killed with SIGKILL, at any point."""

    kind = "tiering killed"
    counts_by = Evidence.by(Symptom.RESTARTED, roles=TIERING)
    drivers = 2
    roles = TIERING

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance, busy=False))


class MemberKilled(_OfClient):
    """A process with members is killed with SIGKILL. Others get its partitions when its sessions end."""

    kind = "member killed"
    # Others read the same messages again; its own calls get no response.
    counts_by = Evidence.by(Symptom.UNKNOWN, roles=MEMBERS)
    roles = frozenset({"indexing"})

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance))
