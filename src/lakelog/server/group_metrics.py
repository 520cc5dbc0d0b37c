"""The metrics of groups and topics: of one environment for a token with the right `metrics`, or of all of them.

Every server reports the groups whose home it is, so the sum over servers is the whole. A page is read once in a few
seconds, however many callers ask for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lakelog.engine import Engine
from lakelog.engine.coalescing import SharedCalls
from lakelog.engine.groups.figures import Figures
from lakelog.model.topic import Scope
from lakelog.server.calls import Call, Response
from lakelog.server.group_routing import GroupRouting
from lakelog.server.metrics import CONTENT_TYPE

KEEP_SECONDS = 5.0
"""How long a page is returned again."""
MAX_SERIES = 10_000
"""The most series on a page. Further groups and topics, by name, are left out."""
EVERY = -1
"""The key of the page of all environments, which is the id of none."""
_TOPIC = ("group", "topic")
_ENVIRONMENT = ("project", "environment")

GROUP_METRICS: dict[str, str] = {
    "lakelog_group_lag_messages": "Messages that the group has not finished in the topic.",
    "lakelog_group_oldest_seconds": "Age of the oldest unfinished message in the topic; 0 if there is none.",
    "lakelog_group_leased_messages": "Messages of the topic that are leased.",
    "lakelog_group_waiting_messages": "Messages of the topic that wait for a retry.",
    "lakelog_group_stuck_partitions": "Partitions of the topic in which the group is stuck, by cause.",
    "lakelog_group_members": "Members of the group.",
    "lakelog_group_dead_letters": "Dead letters of the group, counted up to 10,000.",
    "lakelog_group_rebalances_total": "Changes of the assignment since the group was created.",
    "lakelog_group_rebalancing_seconds_total": "Time that partitions waited for their next member.",
    "lakelog_group_series_left_out": "Series that are not on this page, because there would be too many.",
}


class GroupMetrics:
    """Serves the page of an environment."""

    def __init__(self, engine: Engine, routing: GroupRouting | None) -> None:
        self._figures = engine.figures
        self._catalog = engine.catalog
        self._routing = routing
        self._kept: dict[int, tuple[float, bytes]] = {}
        """The pages by environment, with the time at which they expire."""
        self._reading: SharedCalls[bytes] = SharedCalls()

    async def page(self, call: Call) -> Response:
        """Return the page of the caller's environment."""
        scope = call.scope

        async def read() -> bytes:
            return render(await self._read(scope))

        return Response(200, await self._page(scope.environment_id, read), (b"content-type", CONTENT_TYPE))

    async def every_environment(self) -> bytes:
        """Return a page with the series of all environments, which have the labels `project` and `environment`."""

        async def read() -> bytes:
            scopes = {topic.scope.environment_id: topic.scope for topic in await self._catalog.topic_list_all()}
            ordered = sorted(scopes.values(), key=lambda scope: (scope.project, scope.environment))
            return render_all({(each.project, each.environment): await self._read(each) for each in ordered})

        return await self._page(EVERY, read)

    async def _page(self, environment: int, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return a page again for some seconds. Callers that ask for it at the same time share one read."""

        async def read_and_keep() -> bytes:
            page = await read()
            now = time.monotonic()
            self._kept = {each: kept for each, kept in self._kept.items() if kept[0] > now}
            self._kept[environment] = (now + KEEP_SECONDS, page)
            return page

        until, page = self._kept.get(environment, (0.0, b""))
        if until <= time.monotonic():
            page = await self._reading.get(environment.to_bytes(8, signed=True), read_and_keep)
        return page

    async def _read(self, scope: Scope) -> Figures:
        routing = self._routing

        def is_home(group: str, topic: str) -> bool:
            return routing is None or routing.reports(scope, group, topic)

        return await self._figures.read(scope, is_home)


def render(figures: Figures, most: int = MAX_SERIES) -> bytes:
    """Return the page. With more than `most` series, the last groups and topics are left out, and counted."""
    return _rendered({(): figures}, (), most)


def render_all(figures: Mapping[tuple[str, ...], Figures], most: int = MAX_SERIES) -> bytes:
    """Return the page of several environments, whose figures are given by project and environment."""
    return _rendered(figures, _ENVIRONMENT, most)


def _rendered(figures: Mapping[tuple[str, ...], Figures], labels: tuple[str, ...], most: int) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(figures, labels, most))
    return generate_latest(registry)


class _Page:
    """The series of one page, in the form that prometheus-client collects."""

    def __init__(self, figures: Mapping[tuple[str, ...], Figures], labels: tuple[str, ...], most: int) -> None:
        self._figures = figures
        self._labels = labels
        self._room = most
        self._left_out = 0

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {
            name: CounterMetricFamily(name, text, labels=_labels(name, self._labels))
            if name.endswith("_total")
            else GaugeMetricFamily(name, text, labels=_labels(name, self._labels))
            for name, text in GROUP_METRICS.items()
        }
        for environment, figures in self._figures.items():
            self._add_environment(families, environment, figures)
        families["lakelog_group_series_left_out"].add_metric([], self._left_out)  # type: ignore[attr-defined]
        yield from families.values()

    def _add_environment(self, families: dict[str, Metric], environment: tuple[str, ...], figures: Figures) -> None:
        for group in figures.groups:
            name = (*environment, group.group)
            self._add(
                families,
                {
                    ("lakelog_group_members", *name): group.members,
                    ("lakelog_group_dead_letters", *name): group.dead_letters,
                    ("lakelog_group_rebalances_total", *name): group.rebalances,
                    ("lakelog_group_rebalancing_seconds_total", *name): group.rebalancing_seconds,
                },
            )
        for each in figures.topics:
            place = (*environment, each.group, each.topic)
            stuck: dict[tuple[str, ...], float] = {
                ("lakelog_group_stuck_partitions", *place, code.value): count for code, count in each.stuck.items()
            }
            self._add(
                families,
                {
                    ("lakelog_group_lag_messages", *place): each.lag,
                    ("lakelog_group_oldest_seconds", *place): each.oldest_seconds,
                    ("lakelog_group_leased_messages", *place): each.leased,
                    ("lakelog_group_waiting_messages", *place): each.waiting,
                    **stuck,
                },
            )

    def _add(self, families: dict[str, Metric], series: dict[tuple[str, ...], float]) -> None:
        """Add all series of a group, or of a group in a topic, or none of them."""
        if self._room < len(series):
            self._left_out += len(series)
            return
        self._room -= len(series)
        for (name, *labels), value in series.items():
            families[name].add_metric(labels, value)  # type: ignore[attr-defined]


def _labels(name: str, environment: tuple[str, ...]) -> tuple[str, ...]:
    if name == "lakelog_group_series_left_out":
        return ()
    if name == "lakelog_group_stuck_partitions":
        return (*environment, *_TOPIC, "code")
    per_topic = ("lag_messages", "oldest_seconds", "leased_messages", "waiting_messages")
    return (*environment, *(_TOPIC if name.endswith(per_topic) else _TOPIC[:1]))
