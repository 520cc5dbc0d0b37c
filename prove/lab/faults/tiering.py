"""Faults of tiering: its driver dies at a named point, a task dies, two drivers do the same, an answer is lost.

Two drivers are always there, and the election lets one of them work: who is killed is missed by nobody.
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
from prove.lab.client_processes import Hand
from prove.lab.faults.fault import TIERING, Base, Shown, Sign
from prove.lab.load.tiering_driver import CALL_SECONDS, EVERY, POINTS, UNELECTED
from prove.lab.workload import DRIVERS
from tests.kit.stream_driver import stopped
from tests.kit.waiting import NeverTrue, eventually

if TYPE_CHECKING:
    from prove.lab.topology import Scene
    from tests.kit.proxy import FaultProxy

# A point in the driver ends it there. A point in a task stops the task there, and then the driver is killed.
DRIVER_POINTS = {
    "before PUT": "tier.before_put=stop",
    "between PUTs": "tier.before_put=stop@2",
    "after PUT": "tier.written=kill",
    "after the commit": "tier.registered=kill",
    "before it counts": "tier.before_verified=kill",
    "before the hot delete": "tier.verified=kill",
}
REACHED_SECONDS = 30.0
_AGAIN = Shown.by(Sign.TIERED_AGAIN, roles=TIERING, after=20.0)


class _OfDriver(Base):
    """One driver that works, with fail points of its own."""

    drivers = 2

    def choose(self, scene: Scene, chance: random.Random) -> Hand:
        self.claim(scene, ["tiering"])
        hands = scene.crew.of("tierer")
        chance.shuffle(hands)
        for hand in hands:
            if scene.crew.await_busy(hand, within=8.0):
                self.victims = frozenset({hand.name})
                return hand
        raise Busy("no driver is at work")

    def arm(self, scene: Scene, hand: Hand, points: str) -> None:
        self._points = scene.folder / POINTS / hand.name
        self._points.write_text(points)

    def disarm(self) -> None:
        self._points.unlink(missing_ok=True)

    def end(self, scene: Scene) -> None:
        self.disarm()
        self.release(scene)


class DriverKilled(_OfDriver):
    """kill -9 at a point that the seed draws."""

    kind = "tiering killed at a point"
    drivers = 1
    counts_by = Shown.by(Sign.RESTARTED, roles=TIERING)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.1
        where = chance.choice(list(DRIVER_POINTS))
        hand = self.choose(scene, chance)
        self.about = f"{hand.name}, {where}"
        self.arm(scene, hand, DRIVER_POINTS[where])
        try:
            eventually(lambda: not hand.running or _stopped_task(hand), within=REACHED_SECONDS, every=0.2, what=where)
        except NeverTrue as exc:
            self.disarm()
            raise Busy(f"{hand.name} did not come to its point {where}") from exc
        tree = _children(hand)
        scene.crew.kill9(hand)
        for child in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


class TaskKilled(_OfDriver):
    """A task's process dies when its file is stored, again and again: the driver lives, and its pass fails."""

    kind = "tiering task killed"
    counts_by = _AGAIN

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(6.0, 9.0)
        hand = self.choose(scene, chance)
        self.about = hand.name
        self.arm(scene, hand, "tier.after_put=kill")


class DriverStopped(_OfDriver):
    """SIGSTOP after the commit, until the other driver has taken over; then it goes on with what it had in mind."""

    kind = "tiering stopped and back"
    counts_by = Shown.by(Sign.TIERED_AGAIN, roles=TIERING, after=20.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(9.0, 11.0)
        self._hand = self.choose(scene, chance)
        self.about = self._hand.name
        # The other one shows it, too.
        self.victims = frozenset()
        self.arm(scene, self._hand, "tier.registered=stop@1")
        try:
            eventually(lambda: _is_stopped(self._hand), within=REACHED_SECONDS, every=0.1, what="it stops")
        except NeverTrue as exc:
            self.disarm()
            scene.crew.cont(self._hand)
            raise Busy(f"{self.about} registered nothing") from exc

    def end(self, scene: Scene) -> None:
        self.disarm()
        scene.crew.cont(self._hand)
        self.release(scene)


class TwoDrivers(Base):
    """Both drivers on the same ranges at the same time, whatever the election says."""

    kind = "two drivers on one range"
    counts_by = _AGAIN
    drivers = 2
    # Each waits between two steps, for the other one to come between.
    points = "tier.planned=delay,tier.written=delay,tier.registered=delay"

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(7.0, 10.0)
        self.claim(scene, ["tiering"])
        (scene.folder / POINTS / EVERY).write_text(self.points)
        (scene.folder / POINTS / UNELECTED).touch()

    def end(self, scene: Scene) -> None:
        for name in (EVERY, UNELECTED):
            (scene.folder / POINTS / name).unlink(missing_ok=True)
        self.release(scene)


class RegistrationUntold(TwoDrivers):
    """Segments are registered, and one driver never hears it, however often it asks; the other goes on with them."""

    kind = "registration's answer lost"
    points = ""
    call: ClassVar[bytes] = b"/segments HTTP/"

    def begin(self, scene: Scene, chance: random.Random) -> None:
        super().begin(scene, chance)
        self.seconds = CALL_SECONDS * chance.uniform(1.5, 2.0)
        for side in self.deaf(scene, chance):
            side.drop_answers(matching=self.call)

    def deaf(self, scene: Scene, chance: random.Random) -> list[FaultProxy]:
        """The ways on which nothing is heard."""
        number = chance.randrange(DRIVERS)
        return [server.sides[number] for server in scene.servers]

    def end(self, scene: Scene) -> None:
        for server in scene.servers:
            for side in server.sides:
                side.pass_through()
        super().end(scene)


class VerificationUntold(RegistrationUntold):
    """Segments count from now on, and no driver hears it of its own."""

    kind = "verification's answer lost"
    call = b"/segments/verified HTTP/"

    def deaf(self, scene: Scene, chance: random.Random) -> list[FaultProxy]:
        return [side for server in scene.servers for side in server.sides]


class HotDeleteKilled(Base):
    """All servers are killed while one of them drops a hot table, and waits for somebody who reads it."""

    kind = "servers killed in a hot delete"
    counts_by = Shown.by(Sign.UNKNOWN)
    drivers = 1

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.2
        number = chance.randrange(len(scene.clusters))
        self.about = scene.cells[number]
        url = scene.database_url(number)
        try:
            with psycopg.connect(url, connect_timeout=5) as reader, psycopg.connect(url, autocommit=True) as watcher:
                _read_hot(reader)
                eventually(lambda: self._killed(scene, watcher), within=REACHED_SECONDS, every=0.01, what="a drop")
        except (NeverTrue, psycopg.Error) as exc:
            raise Busy(f"no hot table of {self.about} was about to be dropped") from exc

    def _killed(self, scene: Scene, watcher: psycopg.Connection[tuple[object, ...]]) -> bool:
        """At the moment that a drop waits. It gives up soon, and comes again."""
        waits = "select 1 from pg_stat_activity where query like '%roll_drop%' and wait_event_type = 'Lock'"
        if watcher.execute(waits).fetchone() is None:
            return False
        try:
            self.claim(scene, scene.server_names, within=0.0)
        except Busy:
            return False
        for server in scene.servers:
            if server.process.running:
                os.kill(server.process.pid, signal.SIGKILL)
        return True

    def end(self, scene: Scene) -> None:
        for server in scene.servers:
            server.process.restart()
        for server in scene.servers:
            scene.await_ready(server)
        self.release(scene)


def _read_hot(reader: psycopg.Connection[tuple[object, ...]]) -> None:
    """All hot tables, in a transaction that stays open: none of them can be dropped."""
    for (roll,) in reader.execute("select roll from lakelog.roll").fetchall():
        with contextlib.suppress(psycopg.errors.UndefinedTable), reader.transaction():
            reader.execute(sql.SQL("select 1 from lakelog.{} limit 1").format(sql.Identifier(f"hot_{roll}")))


def _children(hand: Hand) -> list[psutil.Process]:
    try:
        return psutil.Process(hand.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _stopped_task(hand: Hand) -> bool:
    return bool(stopped(_children(hand)))


def _is_stopped(hand: Hand) -> bool:
    return hand.running and bool(stopped([psutil.Process(hand.pid)]))
