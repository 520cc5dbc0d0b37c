"""The routing table: every route with the right that it needs and what the API's description says about it.

Authorisation, dispatch and OpenAPI are all driven by this one table. It handles nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from starlette.routing import compile_path

from lakelog.errors import ConfigurationError, NotFound
from lakelog.model.token import Right
from lakelog.server.calls import HttpRefusal
from lakelog.wire import frames, shapes


class Public(Enum):
    """The rule of a route that everybody may call."""

    PUBLIC = "public"


PUBLIC = Public.PUBLIC
JSON = "application/json"

Rule = frozenset[Right] | Public | None
"""The rights of which a caller needs one. None is a mistake that stops the start-up."""

Body = Mapping[str, tuple[type, ...]]
"""Media types and the shapes that they may carry; none for bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of the query."""

    name: str
    schema: Mapping[str, object]
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation."""

    operation: str
    method: str
    path: str
    rule: Rule
    summary: str
    answers: Mapping[int, Body]
    problems: Sequence[int] = ()
    """Beside those that every route, or every route with a token or a body, may answer."""
    body: Body | None = None
    query: Sequence[Parameter] = ()


def _rule(*rights: Right) -> frozenset[Right]:
    return frozenset(rights)


_PUBLISHED = (shapes.PublishAnswer, shapes.FramesAnswer)
_TOPIC = "/v1/topics/{topic}"
_FETCH_QUERY = (
    Parameter(
        name="offset",
        schema={"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**62}, {"enum": ["earliest", "latest"]}]},
        description="Begin at an offset, or at either end. Give `offset`, `time` or `last`, or none for earliest.",
    ),
    Parameter(
        name="time",
        schema={"type": "string", "format": "date-time"},
        description="Begin with the first message appended at this time or later.",
    ),
    Parameter(
        name="last",
        schema={"type": "integer", "minimum": 0, "maximum": 2**62},
        description="Begin so many messages before the high watermark.",
    ),
    Parameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1000},
        description="At most so many messages.",
    ),
    Parameter(
        name="max_bytes",
        schema={"type": "integer", "minimum": 1, "maximum": 16 << 20, "default": 16 << 20},
        description="Stop after the batch that reaches so many stored bytes.",
    ),
    Parameter(
        name="wait_ms",
        schema={"type": "integer", "minimum": 0, "maximum": 30_000, "default": 0},
        description="How long to wait while there is nothing.",
    ),
)
_LIST_QUERY = (
    Parameter(
        name="after",
        schema={"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"},
        description="Only topics whose names come behind this one: the `next` of the page before.",
    ),
    Parameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000},
        description="At most so many topics.",
    ),
)

# The data routes first: they are also matched by hand, before all others.
ROUTES: tuple[Route, ...] = (
    Route(
        operation="publish",
        method="POST",
        path=f"{_TOPIC}/messages",
        rule=_rule(Right.PUBLISH),
        summary="Publish messages",
        body={JSON: (shapes.Publish,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()},
        answers={200: {JSON: _PUBLISHED}, 207: {JSON: _PUBLISHED}},
        problems=(404, 409),
    ),
    Route(
        operation="fetch",
        method="GET",
        path=f"{_TOPIC}/partitions/{{partition}}/messages",
        rule=_rule(Right.READ),
        summary="Fetch messages of a partition",
        query=_FETCH_QUERY,
        answers={200: {JSON: (shapes.Fetched,), frames.ARROW_MEDIA_TYPE: (), frames.MEDIA_TYPE: ()}},
        problems=(404, 406, 416),
    ),
    Route(
        operation="create_topic",
        method="POST",
        path="/v1/topics",
        rule=_rule(Right.MANAGE),
        summary="Create a topic",
        body={JSON: (shapes.TopicCreate,)},
        answers={201: {JSON: (shapes.TopicShape,)}},
        problems=(409,),
    ),
    Route(
        operation="list_topics",
        method="GET",
        path="/v1/topics",
        rule=_rule(Right.READ),
        summary="List topics by name",
        query=_LIST_QUERY,
        answers={200: {JSON: (shapes.TopicList,)}},
    ),
    Route(
        operation="describe_topic",
        method="GET",
        path=_TOPIC,
        # A producer has to know how many partitions there are, and its token may have no other right.
        rule=_rule(Right.READ, Right.PUBLISH),
        summary="Describe a topic and its partitions",
        answers={200: {JSON: (shapes.TopicShape,)}},
        problems=(404,),
    ),
    Route(
        operation="alter_topic",
        method="PATCH",
        path=_TOPIC,
        rule=_rule(Right.MANAGE),
        summary="Change a topic's settings, or add partitions",
        body={JSON: (shapes.TopicAlter,)},
        answers={200: {JSON: (shapes.TopicShape,)}},
        problems=(404, 409),
    ),
    Route(
        operation="delete_topic",
        method="DELETE",
        path=_TOPIC,
        rule=_rule(Right.MANAGE),
        summary="Delete a topic and all its messages",
        answers={204: {}},
        problems=(404,),
    ),
    Route(
        operation="purge_topic",
        method="POST",
        path=f"{_TOPIC}/purge",
        rule=_rule(Right.MANAGE),
        summary="Remove all messages published so far; offsets go on",
        answers={200: {JSON: (shapes.Purged,)}},
        problems=(404,),
    ),
    Route(
        operation="healthz",
        method="GET",
        path="/healthz",
        rule=PUBLIC,
        summary="Whether the process is alive",
        answers={200: {JSON: (shapes.Health,)}},
    ),
    Route(
        operation="readyz",
        method="GET",
        path="/readyz",
        rule=PUBLIC,
        summary="Whether calls can be served now",
        answers={200: {JSON: (shapes.Health,)}, 503: {JSON: (shapes.Health,)}},
    ),
    Route(
        operation="metrics",
        method="GET",
        path="/metrics",
        rule=PUBLIC,
        summary="Metrics for Prometheus",
        answers={200: {"text/plain": ()}},
    ),
    Route(
        operation="openapi",
        method="GET",
        path="/openapi.json",
        rule=PUBLIC,
        summary="This description",
        answers={200: {JSON: ()}},
    ),
)


def check_routes(routes: Iterable[Route], operations: Iterable[str]) -> None:
    """Refuses a table in which a route has no rule or no handler, or a handler no route."""
    routes, operations = list(routes), set(operations)
    for route in routes:
        if route.rule is None:
            raise ConfigurationError(f"Route {route.method} {route.path} has no rule: say who may call it.")
        if route.operation not in operations:
            raise ConfigurationError(f"Route {route.method} {route.path} has no handler.")
    if extra := operations - {route.operation for route in routes}:
        raise ConfigurationError(f"No route leads to {', '.join(sorted(extra))}.")


class Router:
    """Finds the route of a path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        routes = list(routes)
        by_operation = {route.operation: route for route in routes}
        self._publish, self._fetch = by_operation["publish"], by_operation["fetch"]
        self._compiled = [(compile_path(route.path)[0], route) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and its path's parameters; a 404 or 405 if there is none."""
        parts = path.split("/")
        count = len(parts)
        if count >= 5 and parts[-1] == "messages" and parts[2] == "topics" and parts[1] == "v1":
            if count == 5 and method == "POST":
                return self._publish, {"topic": parts[3]}
            if count == 7 and method == "GET" and parts[4] == "partitions":
                return self._fetch, {"topic": parts[3], "partition": parts[5]}
        return self._search(method, path)

    def _search(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        allowed: list[str] = []
        for pattern, route in self._compiled:
            if match := pattern.fullmatch(path):
                if route.method == method:
                    return route, match.groupdict()
                allowed.append(route.method)
        if allowed:
            methods = ", ".join(allowed)
            raise HttpRefusal(405, f"This path answers to {methods} only.", (b"allow", methods.encode()))
        raise NotFound("There is nothing at this path; /openapi.json lists all of them.")
