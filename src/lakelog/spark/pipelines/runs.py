"""Records the run of a pipeline: its start, a report every few seconds, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakelog.errors import LakelogError, PipelineRunOver

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.model.pipeline import PipelineRun

REPORT_SECONDS = 5.0
"""Interval of reports; much shorter than the time after which a run without reports is declared lost."""


class RunRecorder:
    """Reports the progress of a run. Created by `recorded`."""

    def __init__(self, log: Lakelog, run: PipelineRun) -> None:
        self.run = run
        self._log = log
        self._progress: dict[str, int] = {}
        self._over: PipelineRunOver | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, name="lakelog-run", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Mapping[str, int]:
        return self._progress

    def update(self, progress: Mapping[str, int]) -> None:
        """Send these figures with the next report.

        Raises:
            PipelineRunOver: If the run was declared lost, because another one may run.
        """
        self._progress = dict(progress)
        if self._over is not None:
            raise self._over

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._stop.wait(REPORT_SECONDS):
            try:
                self._log.pipelines.report(self.run, self._progress)
            except PipelineRunOver as error:
                self._over = error
                return
            except LakelogError:
                # A failed report does not stop the run; the work itself finds out whether it may continue.
                continue


@contextmanager
def recorded(log: Lakelog, pipeline: str, topic: str | None = None) -> Iterator[RunRecorder]:
    """Record a run for the duration of the block; raise `PipelineBusy` if another run is active."""
    recorder = RunRecorder(log, log.pipelines.begin(pipeline, topic))
    try:
        yield recorder
    except BaseException as error:
        recorder.stop()
        _end(log, recorder, failed=_told(error))
        raise
    recorder.stop()
    _end(log, recorder)


def _end(log: Lakelog, recorder: RunRecorder, failed: str | None = None) -> None:
    try:
        log.pipelines.end(recorder.run, recorder.progress, failed=failed is not None, detail=failed or "")
    except LakelogError:
        # The work is done. Without this report, the run is recorded as lost.
        if failed is None:
            raise


def _told(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "The run was stopped before it finished."
    return getattr(error, "detail", None) or f"{type(error).__name__}: {error}"[:1000]
