"""Runs one seed: installation, load with faults, healing, drain and final state.

All of it is recorded for the checks.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakelog.engine import Engine
from lakelog.model.message import PARTITION_BITS, partition_of_id
from lakelog.model.topic import Retention, TopicSettings
from lakelog.storage.memory import MemoryStore
from prove.checker.invariant import GroupRules, RunInfo
from prove.history.tables import OwnerVerb, SampleKind, Tables
from prove.simulation.clients import SimulatedClient, SimulatedWorld
from prove.simulation.database import SimulatedDatabase
from prove.simulation.facts import Facts, SimulatedProcess
from prove.simulation.faults import SimulatedFaults
from prove.simulation.loop import Node, VirtualLoop
from prove.simulation.machine import Machine
from prove.simulation.members import SimulatedMember
from prove.simulation.network import SimulatedNetwork
from prove.simulation.noisy_neighbours import NoisyNeighbours
from prove.simulation.operators import SimulatedOperator
from prove.simulation.plan import CURSOR_GROUP, LEASE_GROUP, NEIGHBOURS, SimulationPlan, drawn
from prove.simulation.producers import SimulatedProducer
from prove.simulation.servers import SimulatedServer
from prove.simulation.truth import SimulatedTruth, progress
from prove.simulation.workers import SimulatedWorker

DRAIN_SECONDS = 120.0
LATEST_SECONDS = 2.0
"""The time after which calls that were in transit when the faults ended have arrived."""
SETTLED_SECONDS = 0.5
BESIDE_SECONDS = 15.0
"""Maximum time for a group to finish all other partitions while one of them cannot be read."""
_ENDING = ("producer", "operator")
"""The roles whose clients end by themselves."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The results of one seed."""

    plan: SimulationPlan
    tables: Tables
    run: RunInfo
    faults: Mapping[str, int]
    unexpected: tuple[str, ...]
    """Unexpected exceptions of the engine."""
    calls: int
    digest: str
    trace: tuple[str, ...]


def simulate(seed: int, *, traced: bool = False, digested: bool = False) -> Simulated:
    """Simulate a seed. The same seed always gives the same result."""
    plan = drawn(seed)
    chance = random.Random(f"run {seed}")
    loop = VirtualLoop(random.Random(f"order {seed}").random if plan.is_shuffled else None)
    machine = Machine(loop, random.Random(f"machine {seed}"), plan.remembered_bytes)
    collects = gc.isenabled()
    gc.disable()
    try:
        with machine:
            scenario = _Scenario(plan, loop, chance, traced=traced)
            loop.run_until_complete(scenario.execute())
            loop.close_unfinished()
    finally:
        if collects:
            gc.enable()
    facts, world = scenario.facts, scenario.world
    return Simulated(
        plan=plan,
        tables=facts.tables(),
        run=scenario.run_info(),
        faults=world.faults + world.network.faults + scenario.database.faults,
        unexpected=(*machine.unexpected, *map(repr, loop.errors)),
        calls=sum(len(facts.rows[name]) for name in ("attempt", "call", "answer", "member", "read")),
        digest=facts.digest() if digested or traced else "",
        trace=tuple(facts.trace or ()),
    )


class _Scenario:
    """The parts of one run, and their order."""

    def __init__(self, plan: SimulationPlan, loop: VirtualLoop, chance: random.Random, *, traced: bool) -> None:
        self.plan = plan
        self.loop = loop
        self.database = SimulatedDatabase(loop, chance, plan.cells)
        self.facts = Facts(self.database, traced=traced)
        self.network = SimulatedNetwork(loop, chance)
        self.world = SimulatedWorld(plan, loop, self.network, self.facts, chance)
        self.clients: list[SimulatedClient] = []
        self.faults = SimulatedFaults(self.world, self.database, self.clients, self._replace, self._harm)
        self.world.is_quiet = self.faults.is_quiet
        self.neighbourhood = NoisyNeighbours(self.world, self.database)
        self._times = [0, 0, 0, 0]
        self._observer: Engine
        self._damaged: tuple[str, int] | None = None
        self.database.watchers["log_start_raise"] = self._cut

    def _cut(self, store: MemoryStore, args: tuple[Any, ...], answer: list[tuple[int, int]]) -> None:
        """Record the messages that retention removed."""
        for pid, count in answer:
            head = store._head(pid)
            if head is not None and count:
                self.facts.row(
                    "cut",
                    topic=self.facts.id(self.world.topics[pid >> PARTITION_BITS].name),
                    partition=partition_of_id(pid),
                    first=head.log_start - count,
                    end=head.log_start,
                    at_ns=self.facts.now_ns(),
                )

    def _harm(self, kind: str) -> None:
        if kind in NEIGHBOURS:
            self.neighbourhood.begin_fault(kind)
            return
        topic = max(self.world.topics.values(), key=lambda each: each.partitions)
        partition = self.world.chance.randrange(topic.partitions)
        file = self.database.cold.seal(topic.pid(partition), "segment", self.database.cells[topic.cells[partition]])
        file.damaged = 1.0
        self._damaged = (topic.name, partition)
        self.database.cold.found_damaged = partial(self._lease_untold, SimulatedProcess(self.facts, "damage"))

    def _lease_untold(self, process: SimulatedProcess, pid: int) -> None:
        """Record that a message may have been leased and given back because it could not be read."""
        topic, group = self.facts.id(self.world.topics[pid >> PARTITION_BITS].name), self.facts.id(LEASE_GROUP)
        self.facts.invoke("call", process, topic=topic, group=group, owner=process.id, verb=int(OwnerVerb.CONSUME))

    async def execute(self) -> None:
        await self._install()
        self._times[0] = self.facts.now_ns()
        self._start_clients()
        await self.faults.run()
        await self.faults.heal()
        self._times[1] = self._times[2] = self.facts.now_ns()
        await self._drain()
        self._times[3] = self.facts.now_ns()
        engine = self._observer
        await SimulatedTruth(self.world, engine).tell((LEASE_GROUP,))
        if self.plan.members:
            await progress(self.world, engine, CURSOR_GROUP, SimulatedProcess(self.facts, "reader"), final=True)

    def run_info(self) -> RunInfo:
        facts, plan = self.facts, self.plan
        rules = GroupRules(retries=plan.retries, order=plan.order)
        return RunInfo(
            names=facts.names,
            rules={(facts.id(topic), facts.id(LEASE_GROUP)): rules for topic in plan.topics},
            crashed=frozenset(self.world.crashed),
            faults=tuple(self.faults.noted),
            load_ns=(self._times[0], self._times[1]),
            healed_ns=self._times[2],
            drained_ns=self._times[3],
            # A server learns the database's new time only with its next response.
            targets={"clock_ms": self.database.ahead_ms},
        )

    async def _install(self) -> None:
        plan, world = self.plan, self.world
        for number in range(plan.servers):
            server = SimulatedServer(f"server-{number + 1}", self.loop, self.database, self.network)
            server.agents_every = 1.0 if plan.agents else 0.0
            world.servers.append(server)
            await server.start()
        # No fault affects this one.
        engine = self._observer = Engine(*self.database.connection(Node("observer"), seals=False))
        world.scope = await self.database.catalog.scope_create("shop", "test")
        for number, (name, partitions) in enumerate(plan.topics.items()):
            keeps = Retention(max_count=plan.max_count) if number == 0 else Retention()
            topic = await engine.topics.create(world.scope, name, partitions, TopicSettings(retention=keeps))
            self.world.topics[topic.incarnation] = topic
        if plan.neighbour:
            self.clients += await self.neighbourhood.settle(engine)

    def _start_clients(self) -> None:
        world, plan = self.world, self.plan
        self.clients += [SimulatedProducer(world) for _ in range(plan.producers)]
        topics = list(plan.topics)
        self.clients += [SimulatedWorker(world, topics[number % len(topics)]) for number in range(plan.workers)]
        self.clients += [SimulatedMember(world, topics[0]) for _ in range(plan.members)]
        self.clients.append(SimulatedOperator(world))
        for client in self.clients:
            client.start()

    def _replace(self, dead: SimulatedClient) -> None:
        if isinstance(dead, SimulatedWorker):
            client: SimulatedClient = SimulatedWorker(self.world, dead.topic)
        elif isinstance(dead, SimulatedMember):
            client = SimulatedMember(self.world, dead.topic)
        else:
            client = SimulatedProducer(self.world)
        self.clients.append(client)
        self.loop.call_later(0.5, client.start, context=self.loop.world.context)

    async def _drain(self) -> None:
        """Wait until producers have ended and the groups have finished."""
        world = self.world
        engine, asker = self._observer, SimulatedProcess(self.facts, "asker")
        world.is_draining = True
        healed = self.loop.time()
        await asyncio.sleep(LATEST_SECONDS)
        if self._damaged is not None:
            await self._get_on_beside(*self._damaged)
        while self.loop.time() < healed + DRAIN_SECONDS:
            quiet = all(client.is_over for client in self.clients if client.role in _ENDING)
            if quiet and await progress(world, engine, LEASE_GROUP, asker, final=False):
                break
            await asyncio.sleep(1.0)
        if self.plan.repeats_late:
            workers = [client for client in self.clients if isinstance(client, SimulatedWorker) and not client.is_over]
            await asyncio.gather(*(self.loop.begin(worker.node, worker.repeat_late()) for worker in workers))
        for client in self.clients:
            if not client.is_over:
                client.node.is_dead = True
        # Their agents cut logs. Nothing may change or arrive while the final state is read.
        for server in world.servers:
            if server.node is not None:
                server.node.is_dead = True
        await asyncio.sleep(SETTLED_SECONDS)

    async def _get_on_beside(self, topic: str, damaged: int) -> None:
        """Check that the group finishes the other partitions (L9), then make the damaged partition readable again."""
        world, until = self.world, self.loop.time() + BESIDE_SECONDS
        left: list[str] | None = None
        while left != [] and self.loop.time() < until:
            await asyncio.sleep(1.0)
            if all(client.is_over for client in self.clients if client.role == "producer"):
                parts = await self._observer.groups.lag(world.scope, LEASE_GROUP)
                left = [each.topic for each in parts if each.lag and (each.topic, each.partition) != (topic, damaged)]
        if left is not None:
            self.facts.row(
                "sample",
                kind=int(SampleKind.BESIDE),
                topic=self.facts.id(topic),
                group=self.facts.id(LEASE_GROUP),
                at_ns=self.facts.now_ns(),
                told=len(left),
            )
        self.database.cold.files.clear()
