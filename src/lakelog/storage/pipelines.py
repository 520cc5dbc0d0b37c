"""The storage seam of pipelines' runs: part of the catalog.

Of one pipeline and topic one run goes on at a time; that saves work, and nothing else hangs on it. Contracts stand
here, on the methods; every implementation passes `tests/contract`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.model.topic import Scope

RUNS_KEPT = 100
"""So many runs of a pipeline and topic are remembered."""


class PipelineCatalog(Protocol):
    """Who moves which messages."""

    async def run_begin(self, scope: Scope, start: RunStart, *, alive_seconds: float) -> PipelineRun:
        """The run that goes on: the new one, or the one of the same pipeline and topic that was there first.

        A run not seen for `alive_seconds` is lost, and does not stand in the way. A repeat with the same id answers
        the same run. Forgets old runs.
        """
        ...

    async def run_seen(self, scope: Scope, run_id: str, progress: Mapping[str, int]) -> bool:
        """Whether the run still goes on; then it was seen now, and is so far."""
        ...

    async def run_end(
        self, scope: Scope, run_id: str, state: RunState, progress: Mapping[str, int], detail: str
    ) -> PipelineRun | None:
        """The run as it ended, by this call or an earlier one: a run ends once. None if there is none."""
        ...

    async def run_list(
        self, scope: Scope, *, pipeline: str | None, topic: str | None, limit: int, alive_seconds: float
    ) -> list[PipelineRun]:
        """The newest first; one that runs and was not seen for `alive_seconds` is shown as lost."""
        ...
