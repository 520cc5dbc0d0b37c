"""Faults of servers: killed at any time or at a fail point, stopped and resumed, or restarted in sequence."""

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
    """One server is killed with SIGKILL, and then restarted."""

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


# Each fail point with the maximum number of passes before it ends the server.
POINTS = {
    "append.before_statement": 8,
    "publish.after_commit": 8,
    "leases.before_commit": 20,
    "leases.after_commit": 20,
    "rolls.before_drop": 1,
}
REACHED_SECONDS = 12.0


class ServerKilledAtPoint(BaseFault):
    """A server ends itself at a fail point: before or after a commit of messages or leases, or before a drop.

    The server is restarted first, to arm its fail points.
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
    """All servers are killed with SIGKILL at once."""

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
    """A server is stopped for longer than the short leases that it has granted, and then resumed.

    Its decisions are outdated.
    """

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
    """The servers are stopped with SIGTERM, drained and started again, one at a time."""

    kind = "rolling restart"
    # Drained calls are answered, so clients may only see connections that end between two calls.
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        self.about = "one after the other"
        for server in topology.servers:
            # Claim one at a time, so that other faults may affect the others.
            self.claim(topology, [server.name], within=30.0)
            server.process.terminate()
            server.process.start()
            topology.await_ready(server)
            self.release(topology)
