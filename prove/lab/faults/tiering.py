"""Faults of tiering: the driver dies at a fail point, a task dies, two drivers do the same work, a response is lost.

Two drivers always run. The election lets one of them work, and the other takes over if it is killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from typing import TYPE_CHECKING, ClassVar

import psutil
import psycopg
from psycopg import sql

from prove.lab.claims import Busy
from prove.lab.client_processes import ClientProcess
from prove.lab.faults.fault import TIERING, BaseFault, Evidence, Symptom
from prove.lab.load.tiering_driver import CALL_SECONDS, EVERY, POINTS, UNELECTED
from prove.lab.workload import DRIVERS
from tests.kit.stream_driver import stopped
from tests.kit.waiting import NeverTrue, eventually

if TYPE_CHECKING:
    from prove.lab.topology import Topology
    from tests.kit.proxy import FaultProxy

# A fail point in the driver ends it. A fail point in a task stops the task, and then the driver is killed.
DRIVER_POINTS = {
    "before PUT": "tier.before_put=stop",
    "between PUTs": "tier.before_put=stop@2",
    "after PUT": "tier.written=kill",
    "after the commit": "tier.registered=kill",
    "before it counts": "tier.before_verified=kill",
    "before the hot delete": "tier.verified=kill",
}
REACHED_SECONDS = 30.0
_AGAIN = Evidence.by(Symptom.TIERED_AGAIN, roles=TIERING, after=20.0)


class _OfDriver(BaseFault):
    """Affects one working driver, with its own fail points."""

    drivers = 2

    def choose(self, topology: Topology, chance: random.Random) -> ClientProcess:
        self.claim(topology, ["tiering"])
        processes = topology.clients.of("driver")
        chance.shuffle(processes)
        for client in processes:
            if topology.clients.await_busy(client, within=8.0):
                self.victims = frozenset({client.name})
                return client
        raise Busy("no driver is working")

    def arm(self, topology: Topology, client: ClientProcess, points: str) -> None:
        self._points = topology.folder / POINTS / client.name
        self._points.write_text(points)

    def disarm(self) -> None:
        self._points.unlink(missing_ok=True)

    def end(self, topology: Topology) -> None:
        self.disarm()
        self.release(topology)


class DriverKilled(_OfDriver):
    """The driver is killed with SIGKILL at a random fail point."""

    kind = "tiering killed at a point"
    drivers = 1
    counts_by = Evidence.by(Symptom.RESTARTED, roles=TIERING)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.1
        where = chance.choice(list(DRIVER_POINTS))
        client = self.choose(topology, chance)
        self.about = f"{client.name}, {where}"
        self.arm(topology, client, DRIVER_POINTS[where])
        try:
            eventually(
                lambda: not client.running or _stopped_task(client), within=REACHED_SECONDS, every=0.2, what=where
            )
        except NeverTrue as exc:
            self.disarm()
            raise Busy(f"{client.name} did not reach its fail point {where}") from exc
        tree = _children(client)
        topology.clients.kill9(client)
        for child in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


class TaskKilled(_OfDriver):
    """A task's process dies repeatedly after its file is stored. The driver survives, and its pass fails."""

    kind = "tiering task killed"
    counts_by = _AGAIN

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(6.0, 9.0)
        client = self.choose(topology, chance)
        self.about = client.name
        self.arm(topology, client, "tier.after_put=kill")


class DriverStopped(_OfDriver):
    """A driver is stopped after its commit until the other driver has taken over, and then resumed.

    It continues with outdated plans.
    """

    kind = "tiering stopped and back"
    counts_by = Evidence.by(Symptom.TIERED_AGAIN, roles=TIERING, after=20.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(9.0, 11.0)
        self._client = self.choose(topology, chance)
        self.about = self._client.name
        # The other driver shows it, too.
        self.victims = frozenset()
        self.arm(topology, self._client, "tier.registered=stop@1")
        try:
            eventually(lambda: _is_stopped(self._client), within=REACHED_SECONDS, every=0.1, what="it stops")
        except NeverTrue as exc:
            self.disarm()
            topology.clients.cont(self._client)
            raise Busy(f"{self.about} registered nothing") from exc

    def end(self, topology: Topology) -> None:
        self.disarm()
        topology.clients.cont(self._client)
        self.release(topology)


class TwoDrivers(BaseFault):
    """Both drivers work on the same ranges at the same time, without the election."""

    kind = "two drivers on one range"
    counts_by = _AGAIN
    drivers = 2
    # Each waits between two steps, so that the other can act in between.
    points = "tier.planned=delay,tier.written=delay,tier.registered=delay"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(7.0, 10.0)
        self.claim(topology, ["tiering"])
        (topology.folder / POINTS / EVERY).write_text(self.points)
        (topology.folder / POINTS / UNELECTED).touch()

    def end(self, topology: Topology) -> None:
        for name in (EVERY, UNELECTED):
            (topology.folder / POINTS / name).unlink(missing_ok=True)
        self.release(topology)


class RegistrationUntold(TwoDrivers):
    """Segments are registered, but one driver never gets the response, even if it retries.

    The other driver continues.
    """

    kind = "registration's answer lost"
    points = ""
    call: ClassVar[bytes] = b"/segments HTTP/"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        super().begin(topology, chance)
        self.seconds = CALL_SECONDS * chance.uniform(1.5, 2.0)
        for link in self.muted(topology, chance):
            link.drop_answers(matching=self.call)

    def muted(self, topology: Topology, chance: random.Random) -> list[FaultProxy]:
        """Return the links whose responses are dropped."""
        number = chance.randrange(DRIVERS)
        return [server.driver_links[number] for server in topology.servers]

    def end(self, topology: Topology) -> None:
        for server in topology.servers:
            for link in server.driver_links:
                link.pass_through()
        super().end(topology)


class VerificationUntold(RegistrationUntold):
    """Segments are verified, and no driver gets the response to its call."""

    kind = "verification's answer lost"
    call = b"/segments/verified HTTP/"

    def muted(self, topology: Topology, chance: random.Random) -> list[FaultProxy]:
        return [link for server in topology.servers for link in server.driver_links]


class HotDeleteKilled(BaseFault):
    """All servers are killed while one of them drops a hot table and waits for a reader of it."""

    kind = "servers killed in a hot delete"
    counts_by = Evidence.by(Symptom.UNKNOWN)
    drivers = 1

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 0.2
        number = chance.randrange(len(topology.clusters))
        self.about = topology.cells[number]
        url = topology.database_url(number)
        try:
            with psycopg.connect(url, connect_timeout=5) as reader, psycopg.connect(url, autocommit=True) as watcher:
                _read_hot(reader)
                eventually(lambda: self._killed(topology, watcher), within=REACHED_SECONDS, every=0.01, what="a drop")
        except (NeverTrue, psycopg.Error) as exc:
            raise Busy(f"no hot table of {self.about} was about to be dropped") from exc

    def _killed(self, topology: Topology, watcher: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Kill the servers while a drop waits. A drop soon gives up and retries."""
        waits = "select 1 from pg_stat_activity where query like '%roll_drop%' and wait_event_type = 'Lock'"
        if watcher.execute(waits).fetchone() is None:
            return False
        try:
            self.claim(topology, topology.server_names, within=0.0)
        except Busy:
            return False
        for server in topology.servers:
            if server.process.running:
                os.kill(server.process.pid, signal.SIGKILL)
        return True

    def end(self, topology: Topology) -> None:
        for server in topology.servers:
            server.process.restart()
        for server in topology.servers:
            topology.await_ready(server)
        self.release(topology)


def _read_hot(reader: psycopg.Connection[tuple[object, ...]]) -> None:
    """Read all hot tables in a transaction that stays open, so that none can be dropped."""
    for (roll,) in reader.execute("select roll from lakelog.roll").fetchall():
        with contextlib.suppress(psycopg.errors.UndefinedTable), reader.transaction():
            reader.execute(sql.SQL("select 1 from lakelog.{} limit 1").format(sql.Identifier(f"hot_{roll}")))


def _children(client: ClientProcess) -> list[psutil.Process]:
    try:
        return psutil.Process(client.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _stopped_task(client: ClientProcess) -> bool:
    return bool(stopped(_children(client)))


def _is_stopped(client: ClientProcess) -> bool:
    return client.running and bool(stopped([psutil.Process(client.pid)]))
