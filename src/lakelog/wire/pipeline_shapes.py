"""The JSON bodies about runs of pipelines, as structs that are checked while they are decoded."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from lakelog.model.pipeline import MAX_DETAIL, MAX_IDENTITY, MAX_PROGRESS
from lakelog.wire.shapes import BodyShape, Name, Natural, ReplyShape

RunId = Annotated[str, Meta(min_length=8, max_length=MAX_IDENTITY, pattern=r"^[A-Za-z0-9._-]+$")]
Identity = Annotated[str, Meta(max_length=MAX_IDENTITY)]
ProgressName = Annotated[str, Meta(min_length=1, max_length=60, pattern=r"^[a-z0-9_]+$")]
Progress = Annotated[dict[ProgressName, Natural], Meta(max_length=MAX_PROGRESS)]


class RunBegin(BodyShape, frozen=True, kw_only=True):
    """POST /v1/pipelines/{pipeline}/runs"""

    run_id: RunId
    topic: Name | None = None
    host: Identity = ""


class RunReport(BodyShape, frozen=True, kw_only=True):
    """POST /v1/pipelines/runs/{run_id}/progress"""

    progress: Progress


class RunEnd(BodyShape, frozen=True, kw_only=True):
    """POST /v1/pipelines/runs/{run_id}/end"""

    state: Literal["done", "failed"]
    progress: Progress
    detail: Annotated[str, Meta(max_length=MAX_DETAIL)] = ""


class RunShape(ReplyShape, frozen=True, kw_only=True):
    """A run: running, done, failed, or lost."""

    run_id: str
    pipeline: str
    topic: str | None
    host: str
    state: str
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    progress: dict[str, int]
    detail: str


class RunList(ReplyShape, frozen=True, kw_only=True):
    runs: list[RunShape]
