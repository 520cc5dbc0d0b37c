"""The part of the routing table that is about runs of pipelines."""

from __future__ import annotations

from lakelog.model.token import Right
from lakelog.server.routing import JSON, Parameter, Route, rule
from lakelog.wire import pipeline_shapes as shapes

_NAME = "^[a-z0-9._-]{1,120}$"
_LIST_QUERY = (
    Parameter(name="pipeline", schema={"type": "string", "pattern": _NAME}, description="Only runs of this pipeline."),
    Parameter(name="topic", schema={"type": "string", "pattern": _NAME}, description="Only runs of this topic."),
    Parameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
        description="At most so many runs.",
    ),
)

PIPELINES: tuple[Route, ...] = (
    Route(
        operation="begin_run",
        method="POST",
        path="/v1/pipelines/{pipeline}/runs",
        rule=rule(Right.MANAGE),
        summary="Begin a run of a pipeline, unless one goes on",
        body={JSON: (shapes.RunBegin,)},
        example={"run_id": "0f5c2f6be1d94f9c", "topic": "orders", "host": "etl-1"},
        answers={201: {JSON: (shapes.RunShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="list_runs",
        method="GET",
        path="/v1/pipelines/runs",
        rule=rule(Right.MANAGE),
        summary="List runs of pipelines, the newest first",
        query=_LIST_QUERY,
        answers={200: {JSON: (shapes.RunList,)}},
    ),
    Route(
        operation="report_run",
        method="POST",
        path="/v1/pipelines/runs/{run_id}/progress",
        rule=rule(Right.MANAGE),
        summary="Say that a run is alive, and how far it is",
        body={JSON: (shapes.RunReport,)},
        example={"progress": {"messages": 120000, "segments": 3}},
        answers={204: {}},
        problems=(409,),
    ),
    Route(
        operation="end_run",
        method="POST",
        path="/v1/pipelines/runs/{run_id}/end",
        rule=rule(Right.MANAGE),
        summary="End a run",
        body={JSON: (shapes.RunEnd,)},
        example={"state": "done", "progress": {"messages": 120000, "segments": 3}},
        answers={200: {JSON: (shapes.RunShape,)}},
        problems=(404,),
    ),
)
