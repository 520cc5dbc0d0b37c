"""Runs of pipelines: a record of who moves which messages, and how far it is. It decides nothing about messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

ALIVE_SECONDS = 30.0
"""A run that was not heard of for so long is taken for lost, and the next one may begin."""
MAX_PROGRESS = 32
MAX_DETAIL = 2000
MAX_IDENTITY = 200


class RunState(StrEnum):
    """Running, then one of the others, for good."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"

    @property
    def is_over(self) -> bool:
        return self is not RunState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What is known of a run when it begins. `topic` is empty where a pipeline is about the whole environment."""

    run_id: str
    pipeline: str
    topic: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One run of a pipeline. Times are the database's."""

    run_id: str
    pipeline: str
    topic: str
    host: str
    state: RunState
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None = None
    progress: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""
