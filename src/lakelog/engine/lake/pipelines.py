"""Runs of pipelines: begin (one at a time), report, end, list. `lakelog.spark` implements the pipelines."""

from __future__ import annotations

from lakelog.engine.log.topics import Topics
from lakelog.errors import Conflict, InvalidRequest, PipelineBusy, PipelineRunNotFound, PipelineRunOver
from lakelog.model.names import check_name
from lakelog.model.pipeline import ALIVE_SECONDS, PipelineRun, RunEnd, RunQuery, RunReport, Runs, RunStart, RunState
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
        if not start.host.isprintable():
            raise InvalidRequest("`host` must be printable text.")
        run = await self._begin(scope, start)
        if run.run_id != start.run_id:
            raise PipelineBusy(_busy(run), pipeline=run.pipeline, topic=run.topic, run_id=run.run_id, host=run.host)
        if run.state.is_over:
            raise PipelineRunOver(run_id=run.run_id)
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

    async def report(self, scope: Scope, report: RunReport) -> None:
        """Record progress of a run; raise `PipelineRunOver` if the run is no longer active."""
        if not await self._catalog.pipelines.run_seen(scope, report.run_id, report.progress):
            raise PipelineRunOver(run_id=report.run_id)

    async def end(self, scope: Scope, end: RunEnd) -> PipelineRun:
        """End a run and return it. A repeat changes nothing."""
        run = await self._catalog.pipelines.run_end(scope, end.run_id, RunState(end.state), end.progress, end.detail)
        if run is None:
            raise PipelineRunNotFound(run_id=end.run_id)
        return run

    async def list(self, scope: Scope, query: RunQuery) -> Runs:
        """Return the runs, newest first."""
        found = await self._catalog.pipelines.run_list(
            scope, pipeline=query.pipeline, topic=query.topic, limit=query.limit, alive_seconds=ALIVE_SECONDS
        )
        return Runs(runs=found)


def _busy(run: PipelineRun) -> str:
    of = f" of topic '{run.topic}'" if run.topic else ""
    since = f"{run.started_at:%Y-%m-%d %H:%M:%S}Z"
    return (
        f"Another run of '{run.pipeline}'{of} has been active since {since} on {run.host or 'a host'}. "
        f"Wait until it ends, or stop it. If its process died, the run is considered lost within {ALIVE_SECONDS:.0f} s."
    )
