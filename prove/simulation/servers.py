"""Servers: engines with their agents, which die at any time and restart with nothing but the database."""

from __future__ import annotations

from datetime import timedelta

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.maintenance.roller import Roller
from lakelog.maintenance.trimmer import Trimmer
from prove.simulation.database import SimulatedDatabase
from prove.simulation.loop import Node, VirtualLoop
from prove.simulation.network import Endpoint, SimulatedNetwork


class SimulatedServer(Endpoint):
    """One server of the installation. Each start is a new process."""

    def __init__(self, name: str, loop: VirtualLoop, database: SimulatedDatabase, network: SimulatedNetwork) -> None:
        super().__init__(name)
        self._loop = loop
        self._database = database
        self._network = network
        self._starts = 0
        self.agents_every = 0.0
        """Seconds between passes of the agents; 0 for no agents."""

    async def start(self) -> None:
        if self.node is None:
            self._starts += 1
            self.node = Node(f"{self.name}.{self._starts}" if self._starts > 1 else self.name)
            await self._loop.begin(self.node, self._begin(self.node))

    def crash(self) -> None:
        """Stop all work of the server where it is, and lose its memory."""
        if self.node is not None:
            self.node.is_dead = True
            self.node = self.engine = None
            self._network.broken(self)

    async def _begin(self, node: Node) -> None:
        engine = Engine(*self._database.connection(node))
        engine.extents._run = self._database.cold.run  # type: ignore[method-assign]
        await engine.start()
        self.engine = engine
        if self.agents_every:
            agents: tuple[Agent, ...] = (
                RetentionEnforcer(engine, every_seconds=self.agents_every),
                Roller(engine, every_seconds=self.agents_every, max_bytes=2000, max_age=timedelta(seconds=5)),
                Trimmer(engine, every_seconds=self.agents_every),
            )
            for agent in agents:
                agent.start()
