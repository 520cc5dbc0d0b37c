"""The seam between the client's verbs about runs of pipelines and what carries them; under the transport's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lakelog.model.pipeline import PipelineRun, RunStart, RunState


class AsyncPipelineTransport(Protocol):
    """`seconds` is how long a call may take. All can be repeated: a run has an id of its own."""

    async def begin(self, start: RunStart, seconds: float) -> PipelineRun: ...

    async def report(self, run_id: str, progress: Mapping[str, int], seconds: float) -> None: ...

    async def end(
        self, run_id: str, state: RunState, progress: Mapping[str, int], detail: str, seconds: float
    ) -> PipelineRun: ...

    async def list_runs(
        self, pipeline: str | None, topic: str | None, limit: int, seconds: float
    ) -> Sequence[PipelineRun]: ...
