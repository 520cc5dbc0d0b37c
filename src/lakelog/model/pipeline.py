"""Runs of pipelines: a record of which run moves which messages, and of its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from lakelog.model.structs import Name, Natural, Request, Value

ALIVE_SECONDS = 30.0
"""A run without a report for this time is lost, and the next one may begin."""
MAX_PROGRESS = 32
MAX_DETAIL = 2000
MAX_IDENTITY = 200
DEFAULT_RUNS = 100
MAX_RUNS = 1000

RunId = Annotated[str, Meta(min_length=8, max_length=MAX_IDENTITY, pattern=r"^[A-Za-z0-9._-]+$")]
ProgressName = Annotated[str, Meta(min_length=1, max_length=60, pattern=r"^[a-z0-9_]+$")]
Progress = Annotated[Mapping[ProgressName, Natural], Meta(max_length=MAX_PROGRESS)]
"""Numbers by name, such as messages and segments."""


class RunState(StrEnum):
    """The state of a run: running, then one of the others, which is final.

    Attributes:
        RUNNING: The run is active.
        DONE: The run finished its work.
        FAILED: The run ended with an error.
        LOST: The run stopped reporting, and was declared lost.
        is_over: Whether the run has ended.
    """

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"

    @property
    def is_over(self) -> bool:
        return self is not RunState.RUNNING


class RunStart(Request, frozen=True, kw_only=True):
    """A request to begin a run. `topic` is None if the pipeline is for the whole environment."""

    run_id: RunId
    pipeline: Name
    topic: Name | None = None
    host: Annotated[str, Meta(max_length=MAX_IDENTITY)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One run of a pipeline. Times are those of the database.

    Attributes:
        run_id: The id of the run.
        pipeline: The name of the pipeline, such as "tier".
        topic: The topic; None if the pipeline is not for one topic.
        host: The machine that runs it.
        state: The state of the run.
        started_at: When the run started.
        seen_at: When the run last reported.
        ended_at: When the run ended; None while it is active.
        progress: Figures of the run, by name.
        detail: The error, or a note of the run.
    """

    run_id: str
    pipeline: str
    topic: str | None
    host: str
    state: RunState
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None = None
    progress: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""


class RunReport(Request, frozen=True, kw_only=True):
    """A report that a run is alive, with its progress."""

    run_id: RunId
    progress: Progress


class RunEnd(Request, frozen=True, kw_only=True):
    """A request to end a run."""

    run_id: RunId
    state: Literal["done", "failed"]
    progress: Progress
    detail: Annotated[str, Meta(max_length=MAX_DETAIL)] = ""


class RunQuery(Request, frozen=True, kw_only=True):
    """A request for runs, the newest first."""

    pipeline: Annotated[Name, Meta(description="Only runs of this pipeline.")] | None = None
    topic: Annotated[Name, Meta(description="Only runs of this topic.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_RUNS, description="The largest number of runs to return.")] = DEFAULT_RUNS


class Runs(Value, frozen=True, kw_only=True):
    """Runs of pipelines."""

    runs: list[PipelineRun]
