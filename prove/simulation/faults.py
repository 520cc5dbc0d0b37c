"""Injects the faults of a plan, and heals them. Only faults that took effect are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lakelog.model.message import PARTITION_BITS, partition_of_id
from prove.checker.invariant import FaultInterval
from prove.simulation.clients import SimulatedClient, SimulatedWorld
from prove.simulation.database import DatabaseFault, LostThenLate, SimulatedDatabase
from prove.simulation.network import NetworkConditions
from prove.simulation.plan import DAMAGED, LOST_THEN_LATE, NEIGHBOURS, PlannedFault
from prove.simulation.standby import StandbyCopy

Replace = Callable[[SimulatedClient], None]
"""A function that starts another client in place of one that died."""


class SimulatedFaults:
    """The faults of one run. `clients` changes as clients die and are replaced."""

    def __init__(
        self,
        world: SimulatedWorld,
        database: SimulatedDatabase,
        clients: list[SimulatedClient],
        replace: Replace,
        harm: Callable[[str], None],
    ) -> None:
        """Create the faults. `harm` is a function that begins a fault of one partition or of a neighbour."""
        self._harm = harm
        self._world = world
        self._database = database
        self._clients = clients
        self._replace = replace
        self.noted: list[FaultInterval] = []
        self._standbys: dict[int, tuple[StandbyCopy, int]] = {}
        """By cell: what a standby has received that will be promoted, and since when it receives nothing."""

    async def run(self) -> None:
        world = self._world
        began = world.loop.time()
        for fault in world.plan.faults:
            await asyncio.sleep(max(0.0, began + fault.at - world.loop.time()))
            self._happen(fault)
        await asyncio.sleep(max(0.0, began + world.plan.seconds - world.loop.time()))

    async def heal(self) -> None:
        """Heal all faults: start all servers and stop all losses of messages."""
        world, loop = self._world, self._world.loop
        for cell in list(self._standbys):
            self._promote(cell)
        world.network.conditions = NetworkConditions()
        world.network.is_healed = True
        self._database.call_faults.clear()
        world.before_ack = None
        for server in world.servers:
            if server.node is not None:
                server.node.drift(loop.time(), 1.0)
                if server.node.frozen_until > loop.time():
                    server.node.frozen_until = 0.0
                    loop._thaw(server.node)
            await server.start()

    def is_quiet(self, since: float) -> bool:
        """Return whether no fault has been active since that time, apart from faults of other projects."""
        since_ns = int(since * 1e9) + 1_000_000_000
        return all(fault.ended_ns < since_ns for fault in self.noted)

    def _happen(self, fault: PlannedFault) -> None:
        kind = fault.kind
        if kind in (DAMAGED, *NEIGHBOURS):
            self._world.faults[kind] += 1
            self._world.facts.say(f"FAULT {kind}")
            self._harm(kind)
            return
        if kind.startswith("store: "):
            self._store(kind.removeprefix("store: "), fault.seconds)
            about = ""
        else:
            about = getattr(self, "_" + kind.replace(" ", "_"))(fault.seconds)
            if about is None:
                return
            if kind != "network":
                self._world.faults[kind] += 1
        self._world.facts.say(f"FAULT {kind} {about}, {fault.seconds:.3f} s")
        now = self._world.facts.now_ns()
        self.noted.append(FaultInterval(kind=kind, began_ns=now, ended_ns=now + int(fault.seconds * 1e9), about=about))

    # Servers ------------------------------------------------------------------------------------------------------

    def _server_crash(self, seconds: float, *, every: bool = False) -> str | None:
        world = self._world
        running = [server for server in world.servers if server.node is not None]
        if not running:
            return None
        chosen = running if every else [world.chance.choice(running)]
        for server in chosen:
            server.crash()
            world.loop.call_later(seconds, self._restart, server, context=world.loop.world.context)
        return ", ".join(server.name for server in chosen)

    def _all_servers_crash(self, seconds: float) -> str | None:
        return self._server_crash(seconds / 2, every=True)

    def _restart(self, server: Any) -> None:
        self._world.loop.begin(self._world.loop.world, server.start())

    def _server_freeze(self, seconds: float) -> str | None:
        server = self._running()
        if server is None:
            return None
        self._world.loop.freeze(server.node, seconds)
        return str(server.name)

    def _clock_of_a_server_jumps(self, seconds: float) -> str | None:
        server = self._running()
        if server is None:
            return None
        server.node.ahead += 20 * seconds
        return str(server.name)

    def _clock_of_a_server_drifts(self, seconds: float) -> str | None:
        server = self._running()
        if server is None:
            return None
        # Much too fast, or a little slow: every decision may be late by what that adds up to in a few seconds.
        server.node.drift(self._world.loop.time(), seconds if seconds > 1 else 1 - seconds / 100)
        return str(server.name)

    def _running(self) -> Any:
        running = [server for server in self._world.servers if server.node is not None]
        return self._world.chance.choice(running) if running else None

    # Clients ------------------------------------------------------------------------------------------------------

    def _client_crash(self, role: str) -> str | None:
        those = [client for client in self._clients if client.role == role and not client.is_over]
        if not those:
            return None
        victim = self._world.chance.choice(those)
        victim.crash()
        self._replace(victim)
        return victim.process.name

    def _worker_crash(self, seconds: float) -> str | None:
        return self._client_crash("worker")

    def _member_crash(self, seconds: float) -> str | None:
        return self._client_crash("member")

    def _producer_crash(self, seconds: float) -> str | None:
        return self._client_crash("producer")

    # The database and the network -----------------------------------------------------------------------------------

    def _clock_of_the_database_jumps(self, seconds: float) -> str:
        self._database.ahead_ms += int(1000 * seconds)
        return ""

    def _standby_promoted(self, seconds: float) -> str | None:
        cell = self._world.chance.choice(list(self._database.cells))
        if cell in self._standbys:
            return None
        self._standbys[cell] = (StandbyCopy(self._database.cells[cell]), self._world.facts.now_ns())
        self._world.loop.call_later(seconds, self._promote, cell, context=self._world.loop.world.context)
        return f"cell {cell}"

    def _promote(self, cell: int) -> None:
        if cell in self._standbys:
            standby, since_ns = self._standbys.pop(cell)
            tokens = standby.promote()
            facts = self._world.facts
            facts.say(f"PROMOTED the standby of cell {cell}")
            places = {
                (facts.id(self._world.topics[pid >> PARTITION_BITS].name), partition_of_id(pid)): token
                for pid, token in tokens.items()
            }
            facts.lose(since_ns, places)

    def _store(self, kind: str, seconds: float) -> None:
        running = [server.node.name for server in self._world.servers if server.node is not None]
        whose = self._world.chance.choice([*running, ""])
        now = self._world.loop.time()
        if f"store: {kind}" == LOST_THEN_LATE:
            if self._world.chance.random() < 0.3:
                self._lose(whose, seconds)
            else:
                # Aimed at an ack, because acks are rarer than leases.
                self._world.before_ack = lambda server: self._lose(server, 0.1)
            return
        share = self._world.chance.choice((0.2, 0.5, 1.0))
        self._database.call_faults[whose] = DatabaseFault(kind, now + seconds, share)

    def _lose(self, whose: str, seconds: float) -> None:
        world = self._world
        world.before_ack = None
        late = world.plan.lease_ms / 1000 * (0.5 + world.chance.random())
        self._database.call_faults[whose] = LostThenLate(world.loop.time() + seconds, late)

    def _network(self, seconds: float) -> str:
        world = self._world
        conditions = NetworkConditions()
        chosen = world.chance.choice(list(vars(conditions)))
        setattr(conditions, chosen, world.chance.choice((0.1, 0.3, 0.6)))
        if world.chance.random() < 0.3:
            conditions.lose_request = conditions.lose_answer = 1.0
        world.network.conditions = conditions
        world.loop.call_later(seconds, self._calm, conditions, context=world.loop.world.context)
        return chosen

    def _calm(self, conditions: NetworkConditions) -> None:
        if self._world.network.conditions is conditions:
            self._world.network.conditions = NetworkConditions()
