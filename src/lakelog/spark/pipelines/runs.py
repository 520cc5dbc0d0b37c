"""Records a run of a pipeline while it goes on: begun once, heard of every few seconds, ended however it ends."""

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
"""Much less than the time after which a silent run is taken for lost."""


class RunRecorder:
    """How far the run is. Made by `recorded`."""

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
        """Told at the next report. Raises `PipelineRunOver` once the run was taken for lost: another may go on."""
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
                # Whether the run may go on is for the work itself to find out; a report is only a report.
                continue


@contextmanager
def recorded(log: Lakelog, pipeline: str, topic: str | None = None) -> Iterator[RunRecorder]:
    """A run that goes on within the block; `PipelineBusy` if another one does."""
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
        # What was done is done; the record says `lost` by itself.
        if failed is None:
            raise


def _told(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "Stopped before its end."
    return getattr(error, "detail", None) or f"{type(error).__name__}: {error}"[:1000]
