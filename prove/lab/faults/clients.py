"""Faults of clients: killed with work in client, stopped and back with answers that are too late."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.client_processes import ClientProcess
from prove.lab.faults.fault import MEMBERS, PUBLISHING, SHORTLY, TIERING, WORKING, BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import Topology


class _OfClient(BaseFault):
    """One client of some roles, while it is busy."""

    roles = WORKING

    def choose(self, topology: Topology, chance: random.Random, *, busy: bool = True) -> ClientProcess:
        for _ in range(8):
            client = topology.clients.pick(chance, *sorted(self.roles))
            if not busy or topology.clients.await_busy(client, within=1.0):
                break
        else:
            raise Busy(f"no {' or '.join(sorted(self.roles))} has anything to do")
        self.claim(topology, [client.name])
        self.about, self.victims = client.name, frozenset({client.name})
        return client


class WorkerKilled(_OfClient):
    """kill -9 with leases held: others get the messages when the leases are over."""

    kind = "worker killed"
    # Another worker gets what it had.
    counts_by = Evidence.by(Symptom.REDELIVERED, roles=WORKING, after=20.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance))


class WorkerStopped(_OfClient):
    """SIGSTOP beyond its leases, and back: it answers for what it no longer has."""

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
    """SIGSTOP beyond its session, and back: it commits in partitions that others have now."""

    kind = "member stopped, then commits"
    counts_by = Evidence.by(Symptom.REFUSED, roles=MEMBERS, after=8.0)
    roles = frozenset({"indexing"})


class ProducerKilled(_OfClient):
    """kill -9 while a call is on its way; another process repeats the batch, at another server."""

    kind = "producer killed after sending"
    counts_by = Evidence.by(Symptom.UNKNOWN, roles=PUBLISHING)
    roles = PUBLISHING

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance))


class TieringDriverKilled(_OfClient):
    """kill -9 of who moves messages to files, wherever it is."""

    kind = "tiering killed"
    counts_by = Evidence.by(Symptom.RESTARTED, roles=TIERING)
    drivers = 2
    roles = TIERING

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance, busy=False))


class MemberKilled(_OfClient):
    """kill -9 of a process with members: its partitions go to others when its session is over."""

    kind = "member killed"
    # What it was reading is read again; its own calls are left without an answer.
    counts_by = Evidence.by(Symptom.UNKNOWN, roles=MEMBERS)
    roles = frozenset({"indexing"})

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        topology.clients.kill9(self.choose(topology, chance))
