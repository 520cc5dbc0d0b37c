"""Forgets what nobody can ask for any more: old head rows, silent producers, idempotency keys past their time."""

from __future__ import annotations

from lakelog.engine import Engine
from lakelog.maintenance.agent import Agent
from lakelog.model.topic import TopicSettings


class Trimmer(Agent):
    def __init__(self, engine: Engine, *, every_seconds: float = 20.0) -> None:
        super().__init__(every_seconds=every_seconds)
        self._engine = engine

    async def work(self) -> None:
        usual = TopicSettings().idempotency_memory
        memories = {
            topic.incarnation: topic.settings.idempotency_memory
            for topic in await self._engine.catalog.topic_list_all()
            if topic.settings.idempotency_memory != usual
        }
        for store in self._engine.cells.values():
            await self.attempt(store.trim(memories))
