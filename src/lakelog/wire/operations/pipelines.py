"""The operations about runs of pipelines."""

from __future__ import annotations

from lakelog.model import pipeline
from lakelog.wire.operations.operation import INSPECT, MANAGE, Audit, Operation, manage
from lakelog.wire.redaction import Redaction, hide_runs

_RUNS = "/v1/pipelines/runs"
_PROGRESS = {"messages": 120000, "segments": 3}

BEGIN_RUN = manage(
    "begin_run",
    "/v1/pipelines/{pipeline}/runs",
    "Begin a run of a pipeline, unless another one is running",
    pipeline.RunStart,
    pipeline.PipelineRun,
    status=201,
    example={"run_id": "0f5c2f6be1d94f9c", "topic": "orders", "host": "etl-1"},
    audit=Audit(text="began a run of pipeline {pipeline}"),
)
LIST_RUNS = manage(
    "list_runs",
    _RUNS,
    "List runs of pipelines, the newest first",
    pipeline.RunQuery,
    pipeline.Runs,
    method="GET",
    rights=MANAGE | INSPECT,
    redaction=Redaction(hide=hide_runs),
    problems=(),
)
REPORT_RUN: Operation[pipeline.RunReport, None] = manage(
    "report_run",
    f"{_RUNS}/{{run_id}}/progress",
    "Report that a run is alive, with its progress",
    pipeline.RunReport,
    None,
    example={"progress": _PROGRESS},
    problems=(409,),
)
END_RUN = manage(
    "end_run",
    f"{_RUNS}/{{run_id}}/end",
    "End a run",
    pipeline.RunEnd,
    pipeline.PipelineRun,
    example={"state": "done", "progress": _PROGRESS},
    audit=Audit(text="ended run {run_id} of a pipeline", hidden=("progress",)),
    problems=(404,),
)
