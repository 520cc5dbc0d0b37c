"""The verbs about runs of pipelines into an engine of this process, in both colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lakelog.client.hub import Hub
from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.model.topic import Scope

Run = Callable[..., Any]
"""Runs a coroutine of the verbs in the engine's loop, within a time."""


class PipelineVerbs:
    """The verbs as coroutines in the engine's loop. `enter` gives the hub and the scope."""

    def __init__(self, enter: Callable[[], Awaitable[tuple[Hub, Scope]]]) -> None:
        self._enter = enter

    async def begin(self, start: RunStart) -> PipelineRun:
        hub, scope = await self._enter()
        return await hub.engine.pipelines.begin(scope, start)

    async def report(self, run_id: str, progress: Mapping[str, int]) -> None:
        hub, scope = await self._enter()
        await hub.engine.pipelines.report(scope, run_id, progress)

    async def end(self, run_id: str, state: RunState, progress: Mapping[str, int], detail: str) -> PipelineRun:
        hub, scope = await self._enter()
        return await hub.engine.pipelines.end(scope, run_id, state, progress, detail)

    async def list_runs(self, pipeline: str | None, topic: str | None, limit: int) -> list[PipelineRun]:
        hub, scope = await self._enter()
        return await hub.engine.pipelines.list(scope, pipeline=pipeline, topic=topic, limit=limit)


class AsyncEmbeddedPipelines:
    """The `AsyncPipelineTransport` into an engine of this process."""

    def __init__(self, verbs: PipelineVerbs, run: Run) -> None:
        self._verbs = verbs
        self._run = run

    async def begin(self, start: RunStart, seconds: float) -> PipelineRun:
        found: PipelineRun = await self._run(self._verbs.begin, seconds, start)
        return found

    async def report(self, run_id: str, progress: Mapping[str, int], seconds: float) -> None:
        await self._run(self._verbs.report, seconds, run_id, progress)

    async def end(
        self, run_id: str, state: RunState, progress: Mapping[str, int], detail: str, seconds: float
    ) -> PipelineRun:
        found: PipelineRun = await self._run(self._verbs.end, seconds, run_id, state, progress, detail)
        return found

    async def list_runs(self, pipeline: str | None, topic: str | None, limit: int, seconds: float) -> list[PipelineRun]:
        found: list[PipelineRun] = await self._run(self._verbs.list_runs, seconds, pipeline, topic, limit, writes=False)
        return found


class EmbeddedPipelines:
    """The `PipelineTransport` into an engine of this process."""

    def __init__(self, verbs: PipelineVerbs, run: Run) -> None:
        self._verbs = verbs
        self._run = run

    def begin(self, start: RunStart, seconds: float) -> PipelineRun:
        found: PipelineRun = self._run(self._verbs.begin, seconds, start)
        return found

    def report(self, run_id: str, progress: Mapping[str, int], seconds: float) -> None:
        self._run(self._verbs.report, seconds, run_id, progress)

    def end(
        self, run_id: str, state: RunState, progress: Mapping[str, int], detail: str, seconds: float
    ) -> PipelineRun:
        found: PipelineRun = self._run(self._verbs.end, seconds, run_id, state, progress, detail)
        return found

    def list_runs(self, pipeline: str | None, topic: str | None, limit: int, seconds: float) -> list[PipelineRun]:
        found: list[PipelineRun] = self._run(self._verbs.list_runs, seconds, pipeline, topic, limit, writes=False)
        return found
