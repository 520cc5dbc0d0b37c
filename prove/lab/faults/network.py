"""Faults of links: down, half-open, slow, answers lost after the commit, requests that come late."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.faults.fault import PUBLISHING, WORKING, Base, Shown, Sign
from prove.lab.late_answers import LateMail
from prove.lab.server_link import Held

if TYPE_CHECKING:
    from prove.lab.topology import Scene, Server
    from tests.kit.proxy import FaultProxy


class _OfLink(Base):
    """The link between clients and one server, or between a server and one cell."""

    def wire(self, scene: Scene, chance: random.Random) -> Server:
        server = scene.server(self.claim_one(scene, scene.server_names, chance))
        self._proxy: FaultProxy = server.wire
        return server

    def link(self, scene: Scene, chance: random.Random) -> FaultProxy:
        server = scene.server(self.claim_one(scene, scene.server_names, chance))
        number = chance.randrange(len(server.links))
        self.about = f"{server.name} to {scene.cells[number]}"
        self._proxy = server.links[number]
        return self._proxy

    def end(self, scene: Scene) -> None:
        self._proxy.pass_through()
        self.release(scene)


class LinkDown(_OfLink):
    kind = "link down"

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.5, 3.0)
        self.wire(scene, chance).wire.cut_off()


class HalfOpen(_OfLink):
    kind = "link half-open"
    counts_by = Shown.by(Sign.UNKNOWN, after=4.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(3.0, 5.0)
        self.wire(scene, chance).wire.half_open()


class SlowLink(_OfLink):
    """Slower than clients wait for."""

    kind = "slow link"
    counts_by = Shown.by(Sign.UNKNOWN, Sign.REDELIVERED, Sign.REFUSED, after=5.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(4.0, 6.0)
        self.wire(scene, chance).wire.slow_down(chance.uniform(1.0, 2.5))


class AnswersDropped(_OfLink):
    """The server did it and answered; the answer is lost."""

    kind = "answer dropped after the commit"

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(1.0, 3.0)
        wire = self.wire(scene, chance).wire
        wire.drop_answers(probability=chance.choice((0.3, 1.0)), seed=chance.randrange(1 << 30), matching=b"POST ")


class DatabaseLinkDown(_OfLink):
    kind = "database link down"

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.5, 3.0)
        self.link(scene, chance).cut_off()


class DatabaseHalfOpen(_OfLink):
    kind = "database link half-open"
    counts_by = Shown.by(Sign.UNKNOWN, after=5.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(3.0, 5.0)
        self.link(scene, chance).half_open()


class DatabaseAnswersDropped(_OfLink):
    """PostgreSQL committed; the server never hears of it."""

    kind = "commit's answer dropped"

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.5, 2.0)
        self.link(scene, chance).drop_answers(probability=0.3, seed=chance.randrange(1 << 30))


class RequestsLate(_OfLink):
    """Publishes and answers that their senders have given up, and repeated elsewhere, arrive after all."""

    kind = "request replayed later"
    counts_by = Shown.by(Sign.UNKNOWN, roles=PUBLISHING | WORKING)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(1.0, 4.0)
        self._server = self.wire(scene, chance)
        self._server.wire.hold(chance.randint(2, 6), chance.choice((b"/messages ", b"/answers ")))

    def end(self, scene: Scene) -> None:
        held = self._server.wire.held(1, within=1.0)
        for request in held:
            request.deliver(self._server.port)
        self.about += f", {len(held)} requests"
        self.release(scene)


class OldAnswer(Base):
    """An owner's answer is under way when it is killed, and arrives when others have its messages."""

    kind = "old ack after a new lease"
    counts_by = Shown.by(Sign.REFUSED, roles=frozenset({"late"}), after=2.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 6.0
        self.claim(scene, ["old answer"])
        self._server, self._held = self._caught(scene)
        if self._held is None:
            raise Busy("no answer came by")
        owner = self._held.body["owner"].removesuffix("-thief")
        self.about = f"of {owner}"
        scene.crew.kill9(next(hand for hand in scene.crew.hands if hand.name == owner))

    def _caught(self, scene: Scene) -> tuple[Server, Held | None]:
        """The next answer at any server; its sender is left without a word."""
        for server in scene.servers:
            server.wire.hold(1, b"/groups/jobs/answers ", hangs=True)
        try:
            for _ in range(50):
                for server in scene.servers:
                    if held := server.wire.caught():
                        return server, held[0]
                time.sleep(0.1)
            return scene.servers[0], None
        finally:
            for server in scene.servers:
                server.wire.let_go()

    def end(self, scene: Scene) -> None:
        if self._held is not None:
            LateMail(scene).deliver(self._held, self._server.port)
        self.release(scene)
