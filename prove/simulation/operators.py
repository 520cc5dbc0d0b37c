"""Operators: seek a group, redrive its dead letters, and sample its progress."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from lakelog.engine import Engine
from lakelog.errors import LakelogError
from lakelog.model.dead_letters import RedriveRequest
from lakelog.model.group import Start
from lakelog.model.position import AtOffset, Earliest, Latest
from prove.history.tables import CallOutcome, OwnerVerb
from prove.simulation.clients import SimulatedClient
from prove.simulation.facts import outcome_of
from prove.simulation.network import CallLost
from prove.simulation.plan import LEASE_GROUP
from prove.simulation.truth import progress


class SimulatedOperator(SimulatedClient):
    role = "operator"

    async def run(self) -> None:
        plan, chance = self.world.plan, self.chance
        doings = [*[self._look] * plan.looks, *[self._seek] * plan.seeks, *[self._redrive] * plan.redrives]
        times = sorted(plan.seconds * chance.random() for _ in doings)
        chance.shuffle(doings)
        last = 0.0
        for at, do in zip(times, doings, strict=True):
            await asyncio.sleep(at - last)
            last = at
            try:
                await do(chance.choice(list(plan.topics)))
            except (CallLost, LakelogError) as error:
                self.facts.say(f"{self.process.name}: {error!r}")

    async def _look(self, topic: str) -> None:
        await self.call(partial(self._progress))

    async def _progress(self, engine: Engine) -> None:
        await progress(self.world, engine, LEASE_GROUP, self.process, final=False)

    async def _seek(self, topic: str) -> None:
        facts, chance = self.facts, self.chance
        to: Start = chance.choice((Earliest(), Latest(), Latest(2), AtOffset(1)))
        partition = chance.choice((None, chance.randrange(self.world.plan.topics[topic])))
        row = facts.invoke(
            "call",
            self.process,
            topic=facts.id(topic),
            partition=-1 if partition is None else partition,
            group=facts.id(LEASE_GROUP),
            owner=self.process.id,
            verb=int(OwnerVerb.SEEK),
        )

        async def request(engine: Engine) -> Any:
            return await engine.groups.seek(self.world.scope, LEASE_GROUP, topic, to, partition=partition)

        try:
            moved = await self.call(request)
        except (CallLost, LakelogError) as error:
            facts.complete(row, outcome_of(error))
            raise
        facts.complete(row, CallOutcome.OK)
        facts.say(f"{self.process.name} sought {topic}: {moved}")

    async def _redrive(self, topic: str) -> None:
        async def request(engine: Engine) -> Any:
            return await engine.dead_letters.redrive(self.world.scope, RedriveRequest(group=LEASE_GROUP, topic=topic))

        found = await self.call(request)
        self.facts.say(f"{self.process.name} redrove {found}")
