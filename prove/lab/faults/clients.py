"""Faults of clients: killed with work in hand, stopped and back with answers that are too late."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.client_processes import Hand
from prove.lab.faults.fault import MEMBERS, PUBLISHING, SHORTLY, TIERING, WORKING, Base, Shown, Sign

if TYPE_CHECKING:
    from prove.lab.topology import Scene


class _OfClient(Base):
    """One client of some roles, while it is busy."""

    roles = WORKING

    def choose(self, scene: Scene, chance: random.Random, *, busy: bool = True) -> Hand:
        for _ in range(8):
            hand = scene.crew.pick(chance, *sorted(self.roles))
            if not busy or scene.crew.await_busy(hand, within=1.0):
                break
        else:
            raise Busy(f"no {' or '.join(sorted(self.roles))} has anything to do")
        self.claim(scene, [hand.name])
        self.about, self.victims = hand.name, frozenset({hand.name})
        return hand


class WorkerKilled(_OfClient):
    """kill -9 with leases held: others get the messages when the leases are over."""

    kind = "worker killed"
    # Another worker gets what it had.
    counts_by = Shown.by(Sign.REDELIVERED, roles=WORKING, after=20.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.1
        scene.crew.kill9(self.choose(scene, chance))


class WorkerStopped(_OfClient):
    """SIGSTOP beyond its leases, and back: it answers for what it no longer has."""

    kind = "worker stopped, then answers"
    counts_by = Shown.by(Sign.REFUSED, Sign.REDELIVERED, roles=WORKING, after=8.0)
    # Their leases are shorter than the stop.
    roles = SHORTLY

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(7.0, 8.5)
        self._hand = self.choose(scene, chance)
        scene.crew.stop(self._hand)

    def end(self, scene: Scene) -> None:
        scene.crew.cont(self._hand)
        self.release(scene)


class MemberStopped(WorkerStopped):
    """SIGSTOP beyond its session, and back: it commits in partitions that others have now."""

    kind = "member stopped, then commits"
    counts_by = Shown.by(Sign.REFUSED, roles=MEMBERS, after=8.0)
    roles = frozenset({"indexing"})


class ProducerKilled(_OfClient):
    """kill -9 while a call is on its way; another process repeats the batch, at another server."""

    kind = "producer killed after sending"
    counts_by = Shown.by(Sign.UNKNOWN, roles=PUBLISHING)
    roles = PUBLISHING

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.1
        scene.crew.kill9(self.choose(scene, chance))


class TiererKilled(_OfClient):
    """kill -9 of who moves messages to files, wherever it is."""

    kind = "tiering killed"
    counts_by = Shown.by(Sign.RESTARTED, roles=TIERING)
    drivers = 2
    roles = TIERING

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.1
        scene.crew.kill9(self.choose(scene, chance, busy=False))


class MemberKilled(_OfClient):
    """kill -9 of a process with members: its partitions go to others when its session is over."""

    kind = "member killed"
    # What it was reading is read again; its own calls are left without an answer.
    counts_by = Shown.by(Sign.UNKNOWN, roles=MEMBERS)
    roles = frozenset({"indexing"})

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 0.1
        scene.crew.kill9(self.choose(scene, chance))
