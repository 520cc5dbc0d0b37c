"""Faults of servers: killed, at a point too, stopped and back, restarted one after another."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from lakelog.failpoints import ENVIRONMENT_VARIABLE
from prove.lab.claims import Busy
from prove.lab.faults.fault import BaseFault, Evidence, Symptom

if TYPE_CHECKING:
    from prove.lab.topology import Topology


class ServerKilled(BaseFault):
    """kill -9 of one server; a new process takes its place."""

    kind = "server killed"
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.2, 2.0)
        self._server = topology.server(self.claim_one(topology, topology.server_names, chance))
        self._server.process.kill9()

    def end(self, topology: Topology) -> None:
        self._server.process.start()
        topology.await_ready(self._server)
        self.release(topology)


# And how often each may be passed before it ends the server.
POINTS = {
    "append.before_statement": 8,
    "publish.after_commit": 8,
    "leases.before_commit": 20,
    "leases.after_commit": 20,
    "rolls.before_drop": 1,
}
REACHED_SECONDS = 12.0


class ServerKilledAtPoint(BaseFault):
    """One server ends itself at a named point: before or behind a commit of messages or of leases, before a drop.

    It is started anew for that, so that its fail points are armed.
    """

    kind = "server killed at a point"
    is_hard = True
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.1, 1.0)
        point = chance.choice(list(POINTS))
        at = chance.randint(1, POINTS[point])
        self._server = topology.server(self.claim_one(topology, topology.server_names, chance))
        process = self._server.process
        self._command = process.command
        process.command = replace(self._command, env={**self._command.env, ENVIRONMENT_VARIABLE: f"{point}=kill@{at}"})
        self.has_disturbed = True
        process.restart()
        self.about += f", {point}"
        try:
            process.wait(timeout=REACHED_SECONDS)
        except TimeoutError as exc:
            self.end(topology)
            raise Busy(f"{self.about} was not reached") from exc

    def end(self, topology: Topology) -> None:
        self._server.process.command = self._command
        self._server.process.restart()
        topology.await_ready(self._server)
        self.release(topology)


class ServersKilled(BaseFault):
    """kill -9 of all servers at once."""

    kind = "all servers killed"
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.2
        self.claim(topology, topology.server_names)
        for server in topology.servers:
            server.process.kill9()

    def end(self, topology: Topology) -> None:
        for server in topology.servers:
            server.process.start()
        for server in topology.servers:
            topology.await_ready(server)
        self.release(topology)


class ServerStopped(BaseFault):
    """SIGSTOP beyond short leases that it has given, and back: it wakes up with decisions of another time."""

    kind = "server stopped and back"
    counts_by = Evidence.by(Symptom.UNKNOWN, Symptom.REDELIVERED, after=5.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(6.5, 8.0)
        self._server = topology.server(self.claim_one(topology, topology.server_names, chance))
        self._server.process.stop()

    def end(self, topology: Topology) -> None:
        self._server.process.cont()
        self.release(topology)


class RollingRestart(BaseFault):
    """SIGTERM, drain and start, one server after the other."""

    kind = "rolling restart"
    # Drained calls are answered: connections that end between two calls are all that clients may see.
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        self.about = "one after the other"
        for server in topology.servers:
            # One at a time, so that other faults may hit the others.
            self.claim(topology, [server.name], within=30.0)
            server.process.terminate()
            server.process.start()
            topology.await_ready(server)
            self.release(topology)
