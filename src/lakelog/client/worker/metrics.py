"""The metrics of a client's workers, in Prometheus' text format: handler durations, and messages by outcome.

They belong to this client alone, and need no Prometheus library: a program serves the text, or adds it to its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate

from lakelog.client.worker.completion import WorkerCounts

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the histogram, in seconds."""

_DURATIONS = "lakelog_worker_handler_seconds"
_MESSAGES = "lakelog_worker_messages_total"


@dataclass(slots=True)
class HandlerDurations:
    """How long the handlers of a subscription ran, as a histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    """Handlers by duration: at most each bound of `BUCKETS` and more than the one before; the last, above all bounds.
    """
    seconds: float = 0.0
    """The sum of the durations."""

    def observe(self, seconds: float) -> None:
        """Count a handler that ran for this time."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionMetrics:
    """The metrics of one running subscription."""

    topic: str
    group: str
    counts: WorkerCounts
    durations: HandlerDurations


def render(subscriptions: Sequence[SubscriptionMetrics]) -> str:
    """Return the metrics in Prometheus' text format."""
    return "".join(f"{line}\n" for line in _lines(subscriptions))


def _lines(subscriptions: Sequence[SubscriptionMetrics]) -> Iterator[str]:
    yield f"# HELP {_DURATIONS} How long handlers ran, in seconds."
    yield f"# TYPE {_DURATIONS} histogram"
    for each in subscriptions:
        labels = _labels(each)
        totals = list(accumulate(each.durations.counts))
        for bound, total in zip([*map(str, BUCKETS), "+Inf"], totals, strict=True):
            yield f'{_DURATIONS}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{_DURATIONS}_sum{{{labels}}} {each.durations.seconds}"
        yield f"{_DURATIONS}_count{{{labels}}} {totals[-1]}"
    yield f"# HELP {_MESSAGES} Messages of the workers by outcome."
    yield f"# TYPE {_MESSAGES} counter"
    for each in subscriptions:
        for outcome in fields(WorkerCounts):
            value = getattr(each.counts, outcome.name)
            yield f'{_MESSAGES}{{{_labels(each)},outcome="{outcome.name}"}} {value}'


def _labels(each: SubscriptionMetrics) -> str:
    # Names of topics and groups need no escapes: they have no quotes, backslashes or line breaks.
    return f'topic="{each.topic}",group="{each.group}"'
