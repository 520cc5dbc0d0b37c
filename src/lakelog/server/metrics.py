"""The server's metrics for Prometheus. Each app has one registry, and callers cannot choose the values of any label.

With several workers, prometheus-client adds them up through the files in PROMETHEUS_MULTIPROC_DIR, which the supervisor
sets, so that any worker can respond for all.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from lakelog import meters

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

METRICS: dict[str, str] = {
    "lakelog_publish_messages_total": "Published messages, without repeats.",
    "lakelog_publish_duplicates_total": "Repeated messages, answered with the offsets of the first.",
    "lakelog_publish_refused_total": "Refused messages. The response names the reason of each.",
    "lakelog_publish_bytes_total": "Bytes of the bodies of publish calls.",
    "lakelog_publish_seconds": "Time to answer a publish call.",
    "lakelog_fetch_messages_total": "Messages fetched.",
    "lakelog_fetch_bytes_total": "Bytes of the answers to fetch calls.",
    "lakelog_fetch_seconds": "Time to answer a fetch call that did not have to wait for messages.",
    "lakelog_leased_messages_total": "Leased messages, counted once per lease.",
    "lakelog_answers_total": "Answers to leases, by verb and outcome.",
    "lakelog_consume_seconds": "Time to answer a consume call that did not have to wait for messages.",
    "lakelog_forwarded_calls_total": "Calls forwarded to the home of their group, by outcome.",
    "lakelog_http_requests_total": "Calls answered, by route and status.",
    "lakelog_cells_unreachable": "Cells that did not respond at the last readiness check.",
    "lakelog_lost_messages_total": "Messages that this server had acknowledged and a failover lost.",
    "lakelog_dead_letters_expired_total": "Dead letters that the retention of their group removed.",
    "lakelog_commits_total": "Commits to a database, by what they contain.",
    "lakelog_commit_seconds_total": "Time of commits.",
    "lakelog_commit_items_total": "Messages of commits of messages, and partitions of commits of group progress.",
    "lakelog_commit_conflicts_total": "Group progress that was decided again: another server had changed it.",
    "lakelog_connection_waits_total": "Statements that waited for a connection to a database for 1 ms or more.",
    "lakelog_connection_wait_seconds_total": "Time of these waits.",
    "lakelog_trims_total": "Passes that delete rows which are no longer needed.",
    "lakelog_trim_seconds_total": "Time of these passes.",
    "lakelog_hot_tables": "Tables with messages of the log, by what keeps them.",
    "lakelog_loop_delay_seconds": "Delay of the event loop, measured once a second.",
    "lakelog_http_in_flight": "Calls being served.",
    "lakelog_memory_used_bytes": "Memory of bodies, waiting messages and responses.",
    "lakelog_memory_limit_bytes": "Memory limit above which calls are answered with 429.",
}

# Disable the second series for each counter, which holds its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


Count = Callable[[], float]


def _none() -> float:
    return 0


class _Total:
    """A counter of what another part of the process counts since its start."""

    def __init__(self, counter: Counter, count: Count, *, since_now: bool = False) -> None:
        self._counter = counter
        self._count = count
        self._before = count() if since_now else 0.0

    def sample(self) -> None:
        now = self._count()
        self._counter.inc(now - self._before)
        self._before = now


def _meters(counter: Callable[..., Counter]) -> Iterator[_Total]:
    """Return the totals of what the process has counted since now."""
    commits, seconds, items = (counter(f"lakelog_commit{name}_total", "kind") for name in ("s", "_seconds", "_items"))
    totals: list[tuple[Counter, Count]] = [
        (counter("lakelog_commit_conflicts_total"), lambda: meters.CONFLICTS.count),
        (counter("lakelog_connection_waits_total"), lambda: meters.CONNECTION_WAITS.count),
        (counter("lakelog_connection_wait_seconds_total"), lambda: meters.CONNECTION_WAITS.seconds),
        (counter("lakelog_trims_total"), lambda: meters.TRIMS.count),
        (counter("lakelog_trim_seconds_total"), lambda: meters.TRIMS.seconds),
    ]
    for kind, meter in (("messages", meters.APPENDS), ("groups", meters.GROUP_COMMITS)):
        totals += [
            (commits.labels(kind), partial(getattr, meter, "count")),
            (seconds.labels(kind), partial(getattr, meter, "seconds")),
            (items.labels(kind), partial(getattr, meter, "items")),
        ]
    for total, count in totals:
        yield _Total(total, count, since_now=True)


class Metrics:
    """Counts calls in plain numbers, and passes them to prometheus-client once a second.

    A counter of prometheus-client costs as much as reading the body.
    """

    def __init__(
        self, count_unreachable: Count = _none, count_lost: Count = _none, count_expired: Count = _none
    ) -> None:
        """Create the metrics.

        Args:
            count_unreachable: Returns the number of cells that do not respond.
            count_lost: Returns the number of acknowledged messages that failovers lost since the start.
            count_expired: Returns the number of dead letters that retention removed since the start.
        """
        self._count_unreachable = count_unreachable
        registry = self._registry = CollectorRegistry()

        def counter(name: str, *labels: str) -> Counter:
            return Counter(name, METRICS[name], labels, registry=registry)

        def histogram(name: str) -> Histogram:
            return Histogram(name, METRICS[name], registry=registry, buckets=_BUCKETS)

        def gauge(name: str, *labels: str) -> Gauge:
            return Gauge(name, METRICS[name], labels, registry=registry, multiprocess_mode="livesum")

        self.published = self.duplicates = self.refused = self.publish_bytes = 0
        self.fetched = self.fetch_bytes = self.leased = 0
        self.answers: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self.forwarded: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._counters = {
            "published": counter("lakelog_publish_messages_total"),
            "duplicates": counter("lakelog_publish_duplicates_total"),
            "refused": counter("lakelog_publish_refused_total"),
            "publish_bytes": counter("lakelog_publish_bytes_total"),
            "fetched": counter("lakelog_fetch_messages_total"),
            "fetch_bytes": counter("lakelog_fetch_bytes_total"),
            "leased": counter("lakelog_leased_messages_total"),
        }
        self.publish_seconds = histogram("lakelog_publish_seconds")
        self.fetch_seconds = histogram("lakelog_fetch_seconds")
        self.consume_seconds = histogram("lakelog_consume_seconds")
        self._requests: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._labelled = (
            (counter("lakelog_http_requests_total", "route", "status"), self._requests),
            (counter("lakelog_answers_total", "verb", "outcome"), self.answers),
            (counter("lakelog_forwarded_calls_total", "outcome"), self.forwarded),
        )
        self._cells_unreachable = Gauge(
            "lakelog_cells_unreachable",
            METRICS["lakelog_cells_unreachable"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._totals = (
            _Total(counter("lakelog_lost_messages_total"), count_lost),
            _Total(counter("lakelog_dead_letters_expired_total"), count_expired),
            *_meters(counter),
        )
        self.loop_delay = histogram("lakelog_loop_delay_seconds")
        self._hot_tables = gauge("lakelog_hot_tables", "held_by")
        self._in_flight = gauge("lakelog_http_in_flight")
        self._memory_used = gauge("lakelog_memory_used_bytes")
        self._memory_limit = gauge("lakelog_memory_limit_bytes")

    def answered(self, operation: str, status: int) -> None:
        self._requests[operation, str(status)] += 1

    def sample(self, *, in_flight: int, memory_used: int, memory_limit: int) -> None:
        """Pass the counts and the current values to prometheus-client."""
        for name, total in self._counters.items():
            total.inc(getattr(self, name))
            setattr(self, name, 0)
        for labelled, counts in self._labelled:
            for labels, count in counts.items():
                labelled.labels(*labels).inc(count)
            counts.clear()
        self._cells_unreachable.set(self._count_unreachable())
        for each in self._totals:
            each.sample()
        for holder in ("messages", "writes", "transactions"):
            count = sum(counts[holder] for counts in meters.HOT_TABLES.values())
            self._hot_tables.labels(holder).set(count)
        self._in_flight.set(in_flight)
        self._memory_used.set(memory_used)
        self._memory_limit.set(memory_limit)

    def render(self) -> bytes:
        registry = self._registry
        if MULTIPROCESS in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
