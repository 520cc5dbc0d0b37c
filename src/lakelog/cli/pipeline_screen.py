"""The progress that the commands of `lakelog pipelines` show."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.cli.output import print_result, say
from lakelog.cli.progress_bar import ProgressBar

if TYPE_CHECKING:
    from lakelog.errors import LakelogError
    from lakelog.spark.pipelines.backfilling import BackfillSummary
    from lakelog.spark.pipelines.compacting import CompactSummary
    from lakelog.spark.pipelines.replaying import ReplaySummary
    from lakelog.spark.pipelines.tiering import TierSummary

Done = TypeVar("Done", "TierSummary", "CompactSummary")


class TopicScreen(Generic[Done]):
    """A `JobListener` with a progress bar on a terminal, and a line or a JSON object for each finished topic."""

    def __init__(self, json: bool, unit: str, line: Callable[[Done], str], *, skips: bool = False) -> None:
        """Take the unit of new files, and the line of a result. With `skips`, a result without files is not shown."""
        self._json = json
        self._line: Callable[[Done], str] = line
        self._skips = skips
        self._bar = ProgressBar(f"{{task.fields[segments]:,}} {unit}  {{task.completed:,.0f}} messages")

    def __enter__(self) -> TopicScreen[Done]:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begun(self, topic: str, plan: Done) -> None:
        self._bar.close()
        self._bar.update(topic, 0, plan.messages or None, segments=0)

    def progress(self, done: Done) -> None:
        self._bar.update(done.topic, done.messages, done.planned_messages or None, segments=done.segments)

    def ended(self, done: Done) -> None:
        self._bar.close()
        if not self._skips or done.segments:
            figures = {"topic": done.topic, "dry_run": done.dry_run, **done.figures()}
            print_result(self._json, figures, self._line(done))

    def passed(self, topic: str, error: LakelogError) -> None:
        say(f"lakelog: {topic + ': ' if topic else ''}{error.detail}")


class MessageBar(ProgressBar):
    """A progress bar for messages that a run adds to a topic."""

    def __init__(self) -> None:
        super().__init__("{task.completed:,.0f} of {task.total:,.0f} messages")

    def show(self, done: ReplaySummary | BackfillSummary) -> None:
        self.update(done.topic, done.messages - done.remaining, done.messages)


def stopped_line(name: str | None) -> str:
    """Return the line that is printed after Ctrl-C, for a run with this name."""
    return "Stopped. Run the command again with the same --name to continue." if name else "Stopped."
