"""Runs of pipelines: begin (one at a time), report, end, list. `lakelog.spark` implements the pipelines."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from lakelog.engine.log.topics import Topics
from lakelog.errors import Conflict, InvalidRequest, PipelineBusy, PipelineRunNotFound, PipelineRunOver
from lakelog.model.names import check_name
from lakelog.model.pipeline import (
    ALIVE_SECONDS,
    MAX_DETAIL,
    MAX_IDENTITY,
    MAX_PROGRESS,
    PipelineRun,
    RunStart,
    RunState,
)
from lakelog.model.topic import Scope
from lakelog.storage.store import Catalog

_TRIES = 3


class Pipelines:
    """The runs of all scopes, through the catalog."""

    def __init__(self, catalog: Catalog, topics: Topics) -> None:
        self._catalog = catalog
        self._topics = topics

    async def begin(self, scope: Scope, start: RunStart) -> PipelineRun:
        """Start a run and return it; raise `PipelineBusy` if another run of the pipeline and topic is active."""
        check_name("pipeline", start.pipeline)
        if start.topic:
            await self._topics.find(scope, start.topic)
        _check_text("run_id", start.run_id, least=8)
        _check_text("host", start.host)
        run = await self._begin(scope, start)
        if run.run_id != start.run_id:
            raise PipelineBusy(_busy(run), pipeline=run.pipeline, topic=run.topic, run_id=run.run_id, host=run.host)
        if run.state.is_over:
            raise _over(run.run_id)
        return run

    async def _begin(self, scope: Scope, start: RunStart) -> PipelineRun:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._catalog.pipelines.run_begin(scope, start, alive_seconds=ALIVE_SECONDS)
            except Conflict:
                # The other run has just ended.
                if attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    async def report(self, scope: Scope, run_id: str, progress: Mapping[str, int]) -> None:
        """Record progress of a run; raise `PipelineRunOver` if the run is no longer active."""
        _check_progress(progress)
        if not await self._catalog.pipelines.run_seen(scope, run_id, progress):
            raise _over(run_id)

    async def end(
        self, scope: Scope, run_id: str, state: RunState, progress: Mapping[str, int], detail: str = ""
    ) -> PipelineRun:
        """End a run and return it. A repeat changes nothing."""
        if not state.is_over:
            raise InvalidRequest("A run ends as done or failed.")
        _check_progress(progress)
        run = await self._catalog.pipelines.run_end(scope, run_id, state, progress, detail[:MAX_DETAIL])
        if run is None:
            raise PipelineRunNotFound(run_id=run_id)
        return run

    async def list(
        self, scope: Scope, *, pipeline: str | None = None, topic: str | None = None, limit: int = 100
    ) -> builtins.list[PipelineRun]:
        """Return the runs, newest first."""
        return await self._catalog.pipelines.run_list(
            scope, pipeline=pipeline, topic=topic, limit=limit, alive_seconds=ALIVE_SECONDS
        )


def _busy(run: PipelineRun) -> str:
    of = f" of topic '{run.topic}'" if run.topic else ""
    since = f"{run.started_at:%Y-%m-%d %H:%M:%S}Z"
    return (
        f"Another run of '{run.pipeline}'{of} goes on since {since} on {run.host or 'a host'}. "
        f"Wait for its end, or stop it; if it died, it is taken for lost within {ALIVE_SECONDS:.0f} s."
    )


def _over(run_id: str) -> PipelineRunOver:
    return PipelineRunOver(run_id=run_id)


def _check_text(name: str, text: str, *, least: int = 0) -> None:
    if not least <= len(text) <= MAX_IDENTITY or not (text.isprintable() or not text):
        raise InvalidRequest(f"`{name}` is {least} to {MAX_IDENTITY} printable characters.")


def _check_progress(progress: Mapping[str, int]) -> None:
    if len(progress) > MAX_PROGRESS or any(not 0 <= figure < 1 << 62 for figure in progress.values()):
        raise InvalidRequest(f"Progress is at most {MAX_PROGRESS} names with whole numbers from 0.")
