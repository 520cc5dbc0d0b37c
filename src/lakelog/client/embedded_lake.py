"""The verbs about plans and segments into an engine of this process, in both colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from lakelog.client.embedded_groups import AsyncRun, Run
from lakelog.client.hub import Hub
from lakelog.client.lake_values import Plan, PlanWish, Registered, Segment, TierRange, TierWish, Watermarks
from lakelog.model.topic import Scope


class LakeVerbs:
    """The verbs as coroutines in the engine's loop. `enter` gives the hub and the scope."""

    def __init__(self, enter: Callable[[], Awaitable[tuple[Hub, Scope]]]) -> None:
        self._enter = enter

    async def plan(self, topic: str, wish: PlanWish) -> Plan:
        hub, scope = await self._enter()
        return await hub.engine.lake.plan(scope, topic, wish)

    async def watermarks(self, topic: str, beyond: Mapping[int, int], wait_seconds: float) -> Watermarks:
        hub, scope = await self._enter()
        return await hub.engine.lake.watermarks(scope, topic, beyond, wait_seconds)

    async def tierable(self, topic: str, wish: TierWish) -> list[TierRange]:
        hub, scope = await self._enter()
        return await hub.engine.lake.tierable(scope, topic, wish)

    async def register(self, topic: str, segments: Sequence[Segment]) -> list[Registered]:
        hub, scope = await self._enter()
        return await hub.engine.lake.register(scope, topic, segments)

    async def verified(self, topic: str, segments: Sequence[Segment]) -> list[bool]:
        hub, scope = await self._enter()
        return await hub.engine.lake.verified(scope, topic, segments)

    async def unregister(self, topic: str, segments: Sequence[Segment]) -> list[bool]:
        hub, scope = await self._enter()
        return await hub.engine.lake.unregister(scope, topic, segments)

    async def unverified(self, topic: str) -> list[Segment]:
        hub, scope = await self._enter()
        return await hub.engine.lake.unverified(scope, topic)

    async def look(self, paths: Sequence[str], min_age_seconds: float) -> list[str]:
        hub, scope = await self._enter()
        found = await hub.engine.lake.look(scope, paths, timedelta(seconds=min_age_seconds))
        return [path for path in paths if path in found]

    async def swept(self, paths: Sequence[str]) -> None:
        hub, scope = await self._enter()
        await hub.engine.lake.swept(scope, paths)


class AsyncEmbeddedLake:
    """The `AsyncLakeTransport` into an engine of this process."""

    def __init__(self, verbs: LakeVerbs, run: AsyncRun) -> None:
        self._verbs = verbs
        self._run = run

    async def plan(self, topic: str, wish: PlanWish, seconds: float) -> Plan:
        return await self._run(self._verbs.plan, seconds, topic, wish, writes=False)

    async def watermarks(
        self, topic: str, beyond: Mapping[int, int], wait_seconds: float, seconds: float
    ) -> Watermarks:
        return await self._run(self._verbs.watermarks, seconds, topic, beyond, wait_seconds, writes=False)

    async def tierable(self, topic: str, wish: TierWish, seconds: float) -> list[TierRange]:
        return await self._run(self._verbs.tierable, seconds, topic, wish, writes=False)

    async def register(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[Registered]:
        return await self._run(self._verbs.register, seconds, topic, segments)

    async def verified(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[bool]:
        return await self._run(self._verbs.verified, seconds, topic, segments)

    async def unregister(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[bool]:
        return await self._run(self._verbs.unregister, seconds, topic, segments)

    async def unverified(self, topic: str, seconds: float) -> list[Segment]:
        return await self._run(self._verbs.unverified, seconds, topic, writes=False)

    async def look(self, paths: Sequence[str], min_age_seconds: float, seconds: float) -> list[str]:
        return await self._run(self._verbs.look, seconds, paths, min_age_seconds)

    async def swept(self, paths: Sequence[str], seconds: float) -> None:
        await self._run(self._verbs.swept, seconds, paths)


class EmbeddedLake:
    """The `LakeTransport` into an engine of this process."""

    def __init__(self, verbs: LakeVerbs, run: Run) -> None:
        self._verbs = verbs
        self._run = run

    def plan(self, topic: str, wish: PlanWish, seconds: float) -> Plan:
        return self._run(self._verbs.plan, seconds, topic, wish, writes=False)

    def watermarks(self, topic: str, beyond: Mapping[int, int], wait_seconds: float, seconds: float) -> Watermarks:
        return self._run(self._verbs.watermarks, seconds, topic, beyond, wait_seconds, writes=False)

    def tierable(self, topic: str, wish: TierWish, seconds: float) -> list[TierRange]:
        return self._run(self._verbs.tierable, seconds, topic, wish, writes=False)

    def register(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[Registered]:
        return self._run(self._verbs.register, seconds, topic, segments)

    def verified(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[bool]:
        return self._run(self._verbs.verified, seconds, topic, segments)

    def unregister(self, topic: str, segments: Sequence[Segment], seconds: float) -> list[bool]:
        return self._run(self._verbs.unregister, seconds, topic, segments)

    def unverified(self, topic: str, seconds: float) -> list[Segment]:
        return self._run(self._verbs.unverified, seconds, topic, writes=False)

    def look(self, paths: Sequence[str], min_age_seconds: float, seconds: float) -> list[str]:
        return self._run(self._verbs.look, seconds, paths, min_age_seconds)

    def swept(self, paths: Sequence[str], seconds: float) -> None:
        self._run(self._verbs.swept, seconds, paths)
