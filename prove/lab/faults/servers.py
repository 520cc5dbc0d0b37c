"""Faults of servers: killed, at a point too, stopped and back, restarted one after another."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from lakelog.failpoints import ENVIRONMENT_VARIABLE
from prove.lab.claims import Busy
from prove.lab.faults.fault import Base, Shown, Sign

if TYPE_CHECKING:
    from prove.lab.topology import Scene


class ServerKilled(Base):
    """kill -9 of one server; a new process takes its place."""

    kind = "server killed"
    counts_by = Shown.by(Sign.UNKNOWN)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.2, 2.0)
        self._server = scene.server(self.claim_one(scene, scene.server_names, chance))
        self._server.process.kill9()

    def end(self, scene: Scene) -> None:
        self._server.process.start()
        scene.await_ready(self._server)
        self.release(scene)


# And how often each may be passed before it ends the server.
POINTS = {
    "append.before_statement": 8,
    "publish.after_commit": 8,
    "leases.before_commit": 20,
    "leases.after_commit": 20,
    "rolls.before_drop": 1,
}
REACHED_SECONDS = 12.0


class ServerKilledAtPoint(Base):
    """One server ends itself at a named point: before or behind a commit of messages or of leases, before a drop.

    It is started anew for that, so that its fail points are armed.
    """

    kind = "server killed at a point"
    is_hard = True
    counts_by = Shown.by(Sign.UNKNOWN)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.1, 1.0)
        point = chance.choice(list(POINTS))
        at = chance.randint(1, POINTS[point])
        self._server = scene.server(self.claim_one(scene, scene.server_names, chance))
        process = self._server.process
        self._command = process.command
        process.command = replace(self._command, env={**self._command.env, ENVIRONMENT_VARIABLE: f"{point}=kill@{at}"})
        self.has_disturbed = True
        process.restart()
        self.about += f", {point}"
        try:
            process.wait(timeout=REACHED_SECONDS)
        except TimeoutError as exc:
            self.end(scene)
            raise Busy(f"{self.about} was not reached") from exc

    def end(self, scene: Scene) -> None:
        self._server.process.command = self._command
        self._server.process.restart()
        scene.await_ready(self._server)
        self.release(scene)


class ServersKilled(Base):
    """kill -9 of all servers at once."""

    kind = "all servers killed"
    counts_by = Shown.by(Sign.UNKNOWN)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.2
        self.claim(scene, scene.server_names)
        for server in scene.servers:
            server.process.kill9()

    def end(self, scene: Scene) -> None:
        for server in scene.servers:
            server.process.start()
        for server in scene.servers:
            scene.await_ready(server)
        self.release(scene)


class ServerStopped(Base):
    """SIGSTOP beyond short leases that it has given, and back: it wakes up with decisions of another time."""

    kind = "server stopped and back"
    counts_by = Shown.by(Sign.UNKNOWN, Sign.REDELIVERED, after=5.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(6.5, 8.0)
        self._server = scene.server(self.claim_one(scene, scene.server_names, chance))
        self._server.process.stop()

    def end(self, scene: Scene) -> None:
        self._server.process.cont()
        self.release(scene)


class RollingRestart(Base):
    """SIGTERM, drain and start, one server after the other."""

    kind = "rolling restart"
    # Drained calls are answered: connections that end between two calls are all that clients may see.
    counts_by = Shown.by(Sign.UNKNOWN)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.1
        self.about = "one after the other"
        for server in scene.servers:
            # One at a time, so that other faults may hit the others.
            self.claim(scene, [server.name], within=30.0)
            server.process.terminate()
            server.process.start()
            scene.await_ready(server)
            self.release(scene)
