"""Storage protocol of pipeline runs, which are in the catalog.

One run per pipeline and topic is active at a time. This only saves work; correctness does not depend on it. The
contracts are the docstrings of the methods; `tests/contract` checks every implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.model.topic import Scope

RUNS_KEPT = 100
"""Number of ended runs that are kept per pipeline and topic."""


class PipelineCatalog(Protocol):
    """The pipeline runs of the catalog."""

    async def run_begin(self, scope: Scope, start: RunStart, *, alive_seconds: float) -> PipelineRun:
        """Start a run and return it, or return the active run of the same pipeline and topic.

        A run that was not seen for `alive_seconds` is lost and does not count as active. Repeating the call with the
        same id returns the same run. The call also deletes old runs.
        """
        ...

    async def run_seen(self, scope: Scope, run_id: str, progress: Mapping[str, int]) -> bool:
        """Record the progress of a run that is alive. Return whether the run is still active."""
        ...

    async def run_end(
        self, scope: Scope, run_id: str, state: RunState, progress: Mapping[str, int], detail: str
    ) -> PipelineRun | None:
        """End the run, unless it has ended, and return it. Return None if the run does not exist."""
        ...

    async def run_list(
        self, scope: Scope, *, pipeline: str | None, topic: str | None, limit: int, alive_seconds: float
    ) -> list[PipelineRun]:
        """Return runs, newest first. An active run that was not seen for `alive_seconds` is shown as lost."""
        ...
