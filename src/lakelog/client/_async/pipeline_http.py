"""The verbs about runs of pipelines over HTTP. Connections and errors are `http`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

import msgspec

from lakelog.client._async.group_http import AsyncCaller
from lakelog.client.replies import read_reply
from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.wire import pipeline_shapes as shapes

_JSON = "application/json"


class AsyncHttpPipelines:
    """The `AsyncPipelineTransport` over HTTP."""

    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller

    async def begin(self, start: RunStart, seconds: float) -> PipelineRun:
        body = shapes.RunBegin(run_id=start.run_id, topic=start.topic or None, host=start.host)
        answer = await self._post(f"/v1/pipelines/{start.pipeline}/runs", body, seconds)
        return _run_of(read_reply(answer, shapes.RunShape))

    async def report(self, run_id: str, progress: Mapping[str, int], seconds: float) -> None:
        body = shapes.RunReport(progress=dict(progress))
        await self._post(f"/v1/pipelines/runs/{quote(run_id, safe='')}/progress", body, seconds)

    async def end(
        self, run_id: str, state: RunState, progress: Mapping[str, int], detail: str, seconds: float
    ) -> PipelineRun:
        body = shapes.RunEnd(
            state="failed" if state is RunState.FAILED else "done", progress=dict(progress), detail=detail
        )
        answer = await self._post(f"/v1/pipelines/runs/{quote(run_id, safe='')}/end", body, seconds)
        return _run_of(read_reply(answer, shapes.RunShape))

    async def list_runs(
        self, pipeline: str | None, topic: str | None, limit: int, seconds: float
    ) -> Sequence[PipelineRun]:
        query = {"pipeline": pipeline, "topic": topic, "limit": limit}
        target = f"/v1/pipelines/runs?{urlencode({name: text for name, text in query.items() if text is not None})}"
        answer = await self._caller.get(target, seconds)
        return [_run_of(shape) for shape in read_reply(answer.body, shapes.RunList).runs]

    async def _post(self, target: str, body: object, seconds: float) -> bytes:
        answer = await self._caller.send("POST", target, seconds, msgspec.json.encode(body), _JSON)
        return answer.body


def _run_of(shape: shapes.RunShape) -> PipelineRun:
    return PipelineRun(
        run_id=shape.run_id,
        pipeline=shape.pipeline,
        topic=shape.topic or "",
        host=shape.host,
        state=RunState(shape.state),
        started_at=shape.started_at,
        seen_at=shape.seen_at,
        ended_at=shape.ended_at,
        progress=shape.progress,
        detail=shape.detail,
    )
