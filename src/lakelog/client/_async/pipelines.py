"""Runs of pipelines: begin, report, end, list."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.names import check_name
from lakelog.model.pipeline import DEFAULT_RUNS, MAX_DETAIL, PipelineRun, RunEnd, RunQuery, RunReport, RunStart
from lakelog.wire.operations import pipelines as operations


class AsyncPipelines:
    """Runs of pipelines, as `log.pipelines`. A pipeline has one run at a time for each topic."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def begin(self, pipeline: str, topic: str | None = None, *, host: str | None = None) -> PipelineRun:
        """Begin a run, and return it. Call `report` at least every few seconds, and `end` at the end.

        Args:
            pipeline: The name of the pipeline.
            topic: The topic that the run is about. Default: the whole environment.
            host: The machine that runs the pipeline, for display. Default: the name of this machine.

        Raises:
            PipelineBusy: Another run of the same pipeline and topic has not ended.
        """
        start = RunStart(
            run_id=secrets.token_hex(8),
            pipeline=check_name("pipeline", pipeline),
            topic=check_name("topic", topic) if topic else None,
            host=socket.gethostname() if host is None else host,
        )
        return await self._calls.call(operations.BEGIN_RUN, start)

    async def report(self, run: PipelineRun, progress: Mapping[str, int]) -> None:
        """Report that the run is alive.

        Args:
            run: The run.
            progress: Numbers by name, such as messages and segments.

        Raises:
            PipelineRunOver: The run was considered lost, and another one may have begun.
        """
        await self._calls.call(operations.REPORT_RUN, RunReport(run_id=run.run_id, progress=progress))

    async def end(
        self, run: PipelineRun, progress: Mapping[str, int], *, failed: bool = False, detail: str = ""
    ) -> PipelineRun:
        """End the run, and return it as it ended.

        Args:
            run: The run.
            progress: Numbers by name, such as messages and segments.
            failed: Whether the run failed. Default: False.
            detail: A text for display, at most 2000 characters; more is cut off. Default: empty.
        """
        end = RunEnd(
            run_id=run.run_id, state="failed" if failed else "done", progress=progress, detail=detail[:MAX_DETAIL]
        )
        return await self._calls.call(operations.END_RUN, end)

    async def list(
        self, pipeline: str | None = None, topic: str | None = None, *, limit: int = DEFAULT_RUNS
    ) -> list[PipelineRun]:
        """Return runs, the newest first.

        Args:
            pipeline: Only runs of this pipeline. Default: all.
            topic: Only runs of this topic. Default: all.
            limit: The largest number of runs to return, from 1 to 1000. Default: 100.
        """
        query = RunQuery(pipeline=pipeline, topic=topic, limit=limit)
        return (await self._calls.call(operations.LIST_RUNS, query)).runs
