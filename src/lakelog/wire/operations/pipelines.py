"""The operations about runs of pipelines."""

from __future__ import annotations

from lakelog.model import pipeline
from lakelog.wire.operations.operation import MANAGE, Audit, Operation

_RUNS = "/v1/pipelines/runs"
_PROGRESS = {"messages": 120000, "segments": 3}

BEGIN_RUN = Operation(
    name="begin_run",
    method="POST",
    path="/v1/pipelines/{pipeline}/runs",
    rights=MANAGE,
    summary="Begin a run of a pipeline, unless another one is running",
    request=pipeline.RunStart,
    reply=pipeline.PipelineRun,
    status=201,
    example={"run_id": "0f5c2f6be1d94f9c", "topic": "orders", "host": "etl-1"},
    audit=Audit(text="began a run of pipeline {pipeline}"),
    problems=(404, 409),
)
LIST_RUNS = Operation(
    name="list_runs",
    method="GET",
    path=_RUNS,
    rights=MANAGE,
    summary="List runs of pipelines, the newest first",
    request=pipeline.RunQuery,
    reply=pipeline.Runs,
)
REPORT_RUN: Operation[pipeline.RunReport, None] = Operation(
    name="report_run",
    method="POST",
    path=f"{_RUNS}/{{run_id}}/progress",
    rights=MANAGE,
    summary="Report that a run is alive, with its progress",
    request=pipeline.RunReport,
    example={"progress": _PROGRESS},
    problems=(409,),
)
END_RUN = Operation(
    name="end_run",
    method="POST",
    path=f"{_RUNS}/{{run_id}}/end",
    rights=MANAGE,
    summary="End a run",
    request=pipeline.RunEnd,
    reply=pipeline.PipelineRun,
    example={"state": "done", "progress": _PROGRESS},
    audit=Audit(text="ended run {run_id} of a pipeline", hidden=("progress",)),
    problems=(404,),
)

PIPELINES = (BEGIN_RUN, LIST_RUNS, REPORT_RUN, END_RUN)
