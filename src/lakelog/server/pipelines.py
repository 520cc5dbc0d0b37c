"""The routes about runs of pipelines. What these mean is for the engine to say."""

from __future__ import annotations

import msgspec

from lakelog.engine import Engine
from lakelog.model.names import check_name
from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.server.audit import given
from lakelog.server.bodies import answer_json, decoded_body
from lakelog.server.calls import Answer, Call
from lakelog.server.query import integer, known_query
from lakelog.wire import pipeline_shapes as shapes

_BEGIN = msgspec.json.Decoder(shapes.RunBegin)
_REPORT = msgspec.json.Decoder(shapes.RunReport)
_END = msgspec.json.Decoder(shapes.RunEnd)


class PipelineRoutes:
    """Handles calls about runs."""

    def __init__(self, engine: Engine) -> None:
        self._pipelines = engine.pipelines

    async def begin(self, call: Call) -> Answer:
        shape: shapes.RunBegin = await decoded_body(call, _BEGIN)
        call.note(**given(shape))
        start = RunStart(
            run_id=shape.run_id, pipeline=call.parameters["pipeline"], topic=shape.topic or "", host=shape.host
        )
        return answer_json(_shape(await self._pipelines.begin(call.scope, start)), status=201)

    async def list(self, call: Call) -> Answer:
        query = known_query(call, {"pipeline", "topic", "limit"})
        pipeline = check_name("pipeline", query["pipeline"]) if "pipeline" in query else None
        topic = check_name("topic", query["topic"]) if "topic" in query else None
        limit = integer(query, "limit", 100, 1, 1000)
        runs = await self._pipelines.list(call.scope, pipeline=pipeline, topic=topic, limit=limit)
        return answer_json(shapes.RunList(runs=[_shape(run) for run in runs]))

    async def report(self, call: Call) -> Answer:
        shape: shapes.RunReport = await decoded_body(call, _REPORT)
        await self._pipelines.report(call.scope, call.parameters["run_id"], shape.progress)
        return Answer(204, b"")

    async def end(self, call: Call) -> Answer:
        shape: shapes.RunEnd = await decoded_body(call, _END)
        call.note(**given(shape, "progress"))
        state = RunState(shape.state)
        run = await self._pipelines.end(call.scope, call.parameters["run_id"], state, shape.progress, shape.detail)
        return answer_json(_shape(run))


def _shape(run: PipelineRun) -> shapes.RunShape:
    return shapes.RunShape(
        run_id=run.run_id,
        pipeline=run.pipeline,
        topic=run.topic or None,
        host=run.host,
        state=run.state.value,
        started_at=run.started_at,
        seen_at=run.seen_at,
        ended_at=run.ended_at,
        progress=dict(run.progress),
        detail=run.detail,
    )
