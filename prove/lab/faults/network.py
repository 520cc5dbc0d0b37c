"""Faults of links: down, half-open, slow, lost responses after the commit, and late requests."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.faults.fault import PUBLISHING, WORKING, BaseFault, Evidence, Symptom
from prove.lab.late_answers import LateAnswers
from prove.lab.server_link import HeldRequest

if TYPE_CHECKING:
    from prove.lab.topology import LabServer, Topology
    from tests.kit.proxy import FaultProxy


class _OfLink(BaseFault):
    """Affects the link between clients and one server, or between a server and one cell."""

    def claim_server(self, topology: Topology, chance: random.Random) -> LabServer:
        server = topology.server(self.claim_one(topology, topology.server_names, chance))
        self._proxy: FaultProxy = server.client_link
        return server

    def claim_database_link(self, topology: Topology, chance: random.Random) -> FaultProxy:
        server = topology.server(self.claim_one(topology, topology.server_names, chance))
        number = chance.randrange(len(server.database_links))
        self.about = f"{server.name} to {topology.cells[number]}"
        self._proxy = server.database_links[number]
        return self._proxy

    def end(self, topology: Topology) -> None:
        self._proxy.pass_through()
        self.release(topology)


class LinkDown(_OfLink):
    kind = "link down"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.5, 3.0)
        self.claim_server(topology, chance).client_link.cut_off()


class LinkHalfOpen(_OfLink):
    kind = "link half-open"
    counts_by = Evidence.by(Symptom.UNKNOWN, after=4.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(3.0, 5.0)
        self.claim_server(topology, chance).client_link.half_open()


class SlowLink(_OfLink):
    """The link is so slow that clients time out."""

    kind = "slow link"
    counts_by = Evidence.by(Symptom.UNKNOWN, Symptom.REDELIVERED, Symptom.REFUSED, after=5.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(4.0, 6.0)
        self.claim_server(topology, chance).client_link.slow_down(chance.uniform(1.0, 2.5))


class AnswersDropped(_OfLink):
    """The server performs the call and responds, but the response is lost."""

    kind = "answer dropped after the commit"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(1.0, 3.0)
        link = self.claim_server(topology, chance).client_link
        link.drop_answers(probability=chance.choice((0.3, 1.0)), seed=chance.randrange(1 << 30), matching=b"POST ")


class DatabaseLinkDown(_OfLink):
    kind = "database link down"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.5, 3.0)
        self.claim_database_link(topology, chance).cut_off()


class DatabaseHalfOpen(_OfLink):
    kind = "database link half-open"
    counts_by = Evidence.by(Symptom.UNKNOWN, after=5.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(3.0, 5.0)
        self.claim_database_link(topology, chance).half_open()


class DatabaseAnswersDropped(_OfLink):
    """PostgreSQL commits, but the server gets no response."""

    kind = "commit's answer dropped"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.5, 2.0)
        self.claim_database_link(topology, chance).drop_answers(probability=0.3, seed=chance.randrange(1 << 30))


class RequestsLate(_OfLink):
    """Publishes and answers arrive late, after their senders have repeated them at another server."""

    kind = "request replayed later"
    counts_by = Evidence.by(Symptom.UNKNOWN, roles=PUBLISHING | WORKING)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(1.0, 4.0)
        self._server = self.claim_server(topology, chance)
        self._server.client_link.hold(chance.randint(2, 6), chance.choice((b"/messages ", b"/answers ")))

    def end(self, topology: Topology) -> None:
        held = self._server.client_link.held(1, within=1.0)
        for request in held:
            request.deliver(self._server.port)
        self.about += f", {len(held)} requests"
        self.release(topology)


class OldAnswer(BaseFault):
    """An owner is killed while its answer is in transit, and the answer arrives when others hold its messages."""

    kind = "old ack after a new lease"
    counts_by = Evidence.by(Symptom.REFUSED, roles=frozenset({"late"}), after=2.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 6.0
        self.claim(topology, ["old answer"])
        self._server, self._held = self._caught(topology)
        if self._held is None:
            raise Busy("no answer was sent")
        owner = self._held.body["owner"].removesuffix("-thief")
        self.about = f"of {owner}"
        topology.clients.kill9(next(client for client in topology.clients.processes if client.name == owner))

    def _caught(self, topology: Topology) -> tuple[LabServer, HeldRequest | None]:
        """Hold and return the next answer that arrives at any server. Its sender gets no response."""
        for server in topology.servers:
            server.client_link.hold(1, b"/groups/jobs/answers ", hangs=True)
        try:
            for _ in range(50):
                for server in topology.servers:
                    if held := server.client_link.caught():
                        return server, held[0]
                time.sleep(0.1)
            return topology.servers[0], None
        finally:
            for server in topology.servers:
                server.client_link.let_go()

    def end(self, topology: Topology) -> None:
        if self._held is not None:
            LateAnswers(topology).deliver(self._held, self._server.port)
        self.release(topology)
