"""The base of all simulated clients: a node, a name, servers to choose from, and the simulated world."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from lakelog.engine import Engine
from lakelog.model.shard import Shard
from lakelog.model.topic import Scope, Topic
from prove.simulation.facts import Facts, SimulatedProcess
from prove.simulation.loop import Node, VirtualLoop
from prove.simulation.network import Request, SimulatedNetwork
from prove.simulation.plan import SimulationPlan
from prove.simulation.servers import SimulatedServer


class SimulatedWorld:
    """One run: the state that its parts share."""

    def __init__(
        self, plan: SimulationPlan, loop: VirtualLoop, network: SimulatedNetwork, facts: Facts, chance: random.Random
    ) -> None:
        self.plan = plan
        self.loop = loop
        self.network = network
        self.facts = facts
        self.chance = chance
        self.servers: list[SimulatedServer] = []
        self.topics: dict[int, Topic] = {}
        """The topics by incarnation."""
        self.scope: Scope
        self.crashed: set[int] = set()
        """Processes that died."""
        self.is_draining = False
        self.before_ack: Callable[[str], None] | None = None
        """A function that is called with the server that is about to get an ack, so that the next fault can hit it."""
        self.is_quiet: Callable[[float], bool] = lambda since: False
        """A function that returns whether no fault has been active since a time, apart from faults of other
        projects.
        """
        self.faults: Counter[str] = Counter()
        self._serial: Counter[str] = Counter()

    def process(self, role: str) -> SimulatedProcess:
        self._serial[role] += 1
        return SimulatedProcess(self.facts, f"{role}-{self._serial[role]}")

    def shard_of(self, engine: Engine) -> Shard | None:
        """Return the shard that the server of this engine believes to have. At any time, one shard has no home."""
        if not self.plan.shard_seconds:
            return None
        numbers = [number for number, server in enumerate(self.servers) if server.engine is engine]
        count = len(self.servers) + 1
        return Shard(index=(sum(numbers) + int(self.loop.time() / self.plan.shard_seconds)) % count, count=count)


class SimulatedClient:
    """A process that calls servers. When it dies, another process with a new name replaces it."""

    role = "client"

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.facts = world.facts
        self.chance = world.chance
        self.process = world.process(self.role)
        self.node = Node(self.process.name)
        self.server = self.chance.choice(world.servers)
        self.task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self.task = self.world.loop.begin(self.node, self.run())

    async def run(self) -> None:
        raise NotImplementedError

    def crash(self) -> None:
        """Stop the process where it is. It loses everything that it holds."""
        self.node.is_dead = True
        self.world.crashed.add(self.process.id)

    @property
    def is_over(self) -> bool:
        return self.node.is_dead or self.task is None or self.task.done()

    async def call(self, request: Request, *, seconds: float = 3.0, again: Callable[[], None] | None = None) -> Any:
        """Call the current server. After a network failure the next call may go to another one."""
        try:
            return await self.world.network.call(self.server, request, seconds=seconds, again=again)
        except Exception:
            if self.chance.random() < 0.5:
                self.server = self.chance.choice(self.world.servers)
            raise

    async def rest(self, most: float) -> None:
        await asyncio.sleep(most * self.chance.random())
