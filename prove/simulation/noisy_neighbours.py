"""Another project on the same servers and databases, whose log or journal is slow or impossible to read.

The neighbour itself is not judged. Its failures must neither delay the groups of the run (L9) nor be visible there
(S24).
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeResult, Leased
from lakelog.errors import LakelogError
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.groups import JournalRow
from prove.simulation.clients import SimulatedClient, SimulatedWorld
from prove.simulation.database import SimulatedDatabase
from prove.simulation.network import CallLost
from prove.simulation.plan import CANARY

_TOPIC = f"{CANARY}-orders"
_GROUPS = (f"{CANARY}-one", f"{CANARY}-two", f"{CANARY}-three")
_PARTITIONS = 3
_MESSAGES = 10
_UNKNOWN_EVENT = 99


class NoisyNeighbours:
    """The neighbour's project, and its faults."""

    def __init__(self, world: SimulatedWorld, database: SimulatedDatabase) -> None:
        self._world = world
        self._database = database
        self._scope: Scope
        self._pids: list[int] = []

    async def settle(self, engine: Engine) -> list[SimulatedClient]:
        """Create the neighbour's topic, whose messages are all cold, and return the neighbour's workers."""
        self._scope = await self._database.catalog.scope_create(CANARY, "test")
        topic = await engine.topics.create(self._scope, _TOPIC, _PARTITIONS)
        for partition in range(_PARTITIONS):
            message = Message(value=CANARY.encode(), partition=partition)
            publish = partial(engine.publisher.messages, self._scope, _TOPIC, [message])
            await asyncio.gather(*(publish() for _ in range(_MESSAGES)))
            pid, store = topic.pid(partition), self._database.cells[topic.cells[partition]]
            self._database.cold.seal(pid, f"{CANARY}/segment-{partition}", store)
            self._pids.append(pid)
        return [NoisyNeighbour(self._world, self._scope, group) for group in _GROUPS for _ in range(2)]

    def begin_fault(self, kind: str) -> None:
        """Begin a fault that lasts until the run ends."""
        files = [self._database.cold.files[pid] for pid in self._pids]
        if kind == "neighbour: segment damaged":
            for file in files[: self._world.chance.randint(1, _PARTITIONS)]:
                # Some reads succeed: a message is leased, and cannot be read when its owner gives it up.
                file.damaged = self._world.chance.choice((0.5, 1.0))
        elif kind == "neighbour: object store slow":
            for file in files:
                file.seconds = self._world.chance.choice((1.0, 3.0))
        else:
            self._write_unknown_event()

    def _write_unknown_event(self) -> None:
        """Write an event of a newer server version into the neighbour's journals."""
        body = msgspec.msgpack.encode((1, 0, [[_UNKNOWN_EVENT, 1]]))
        for store in self._database.cells.values():
            for (_, pid), journal in store.groups._journals.items():
                if pid in self._pids and journal.rows:
                    row, at = journal.rows[-1]
                    journal.rows.append((JournalRow(version=row.version + 1, snapshot=False, body=body), at))


class NoisyNeighbour(SimulatedClient):
    """A worker of the neighbour: consumes, acks and fails messages quickly."""

    role = "neighbour"

    def __init__(self, world: SimulatedWorld, scope: Scope, group: str) -> None:
        super().__init__(world)
        self._scope = scope
        self._group = group

    async def run(self) -> None:
        while True:
            try:
                consumed: ConsumeResult = await self.call(self._consume, seconds=6.0)
                for lease in consumed.leases:
                    # Use a server that has nothing of the message in memory.
                    self.server = self.chance.choice(self.world.servers)
                    await self.call(partial(self._answer, lease), seconds=6.0)
            except (CallLost, LakelogError):
                await self.rest(1.0)
            await self.rest(0.2)

    async def _consume(self, engine: Engine) -> ConsumeResult:
        ask = ConsumeRequest(
            topic=_TOPIC, group=self._group, owner=self.process.name, lease_ms=1000, wait_ms=500, start_from="earliest"
        )
        return await engine.leases.consume(self._scope, ask)

    async def _answer(self, lease: Leased, engine: Engine) -> object:
        verb = self.chance.choice((Verb.ACK, Verb.FAIL, Verb.NACK))
        answer = LeaseAnswer(
            verb=verb,
            partition=lease.partition,
            token=lease.token,
            offsets=tuple(lease.offsets),
        )
        return await engine.leases.answer(self._scope, _TOPIC, self._group, self.process.name, [answer])
