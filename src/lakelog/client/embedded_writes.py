"""The verbs about writes into an engine of this process, in both colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from lakelog.client.embedded_groups import AsyncRun, Run
from lakelog.client.hub import Hub
from lakelog.model.topic import Scope
from lakelog.model.write import DecideWish, StagePiece, StageWish, Written


class WriteVerbs:
    """The verbs as coroutines in the engine's loop. `enter` gives the hub and the scope."""

    def __init__(self, enter: Callable[[], Awaitable[tuple[Hub, Scope]]]) -> None:
        self._enter = enter

    async def stage(self, topic: str, wish: StageWish, pieces: Sequence[StagePiece]) -> None:
        hub, scope = await self._enter()
        await hub.engine.writes.stage(scope, topic, wish, pieces)

    async def decide(self, topic: str, wish: DecideWish) -> Written:
        hub, scope = await self._enter()
        return await hub.engine.writes.decide(scope, topic, wish)


class AsyncEmbeddedWrites:
    """The `AsyncWriteTransport` into an engine of this process."""

    def __init__(self, verbs: WriteVerbs, run: AsyncRun) -> None:
        self._verbs = verbs
        self._run = run

    async def stage(self, topic: str, wish: StageWish, pieces: Sequence[StagePiece], seconds: float) -> None:
        return await self._run(self._verbs.stage, seconds, topic, wish, pieces)

    async def decide(self, topic: str, wish: DecideWish, seconds: float) -> Written:
        return await self._run(self._verbs.decide, seconds, topic, wish)


class EmbeddedWrites:
    """The `WriteTransport` into an engine of this process."""

    def __init__(self, verbs: WriteVerbs, run: Run) -> None:
        self._verbs = verbs
        self._run = run

    def stage(self, topic: str, wish: StageWish, pieces: Sequence[StagePiece], seconds: float) -> None:
        return self._run(self._verbs.stage, seconds, topic, wish, pieces)

    def decide(self, topic: str, wish: DecideWish, seconds: float) -> Written:
        return self._run(self._verbs.decide, seconds, topic, wish)
