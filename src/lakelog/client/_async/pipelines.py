"""Runs of pipelines in the caller's hands: begin, report, end, list."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.pipeline_transport import AsyncPipelineTransport
from lakelog.model.names import check_name
from lakelog.model.pipeline import MAX_DETAIL, PipelineRun, RunStart, RunState

Found = TypeVar("Found")


class AsyncPipelines:
    """Made by `log.pipelines`. Of one pipeline and topic one run goes on at a time."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def begin(self, pipeline: str, topic: str | None = None, *, host: str | None = None) -> PipelineRun:
        """A new run; `PipelineBusy` while another goes on. Report at least every few seconds, and end it."""
        start = RunStart(
            run_id=secrets.token_hex(8),
            pipeline=check_name("pipeline", pipeline),
            topic=check_name("topic", topic) if topic else "",
            host=socket.gethostname() if host is None else host,
        )
        return await self._call(lambda pipelines, left: pipelines.begin(start, left))

    async def report(self, run: PipelineRun, progress: Mapping[str, int]) -> None:
        """The run is alive, and so far; `PipelineRunOver` if it was taken for lost, and another may have begun."""
        await self._call(lambda pipelines, left: pipelines.report(run.run_id, progress, left))

    async def end(
        self, run: PipelineRun, progress: Mapping[str, int], *, failed: bool = False, detail: str = ""
    ) -> PipelineRun:
        """The run as it ended."""
        state = RunState.FAILED if failed else RunState.DONE
        text = detail[:MAX_DETAIL]
        return await self._call(lambda pipelines, left: pipelines.end(run.run_id, state, progress, text, left))

    async def list(
        self, pipeline: str | None = None, topic: str | None = None, *, limit: int = 100
    ) -> list[PipelineRun]:
        """The newest first, of one pipeline and topic or of all."""
        return [*await self._call(lambda pipelines, left: pipelines.list_runs(pipeline, topic, limit, left))]

    async def _call(self, call: Callable[[AsyncPipelineTransport, float], Awaitable[Found]]) -> Found:
        pipelines = self._calls.transport.pipelines
        return await self._calls.run(lambda left: call(pipelines, left), safe=True)
