"""What a route is, the check of the routing table, and the search in it. The table itself stands in `routes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from starlette.routing import compile_path

from lakelog.errors import ConfigurationError, NotFound
from lakelog.model.token import Right
from lakelog.server.calls import HttpRefusal


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
    required: bool = False


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
    example: object = None
    """Of a JSON body."""
    body_optional: bool = False
    query: Sequence[Parameter] = ()


def rule(*rights: Right) -> frozenset[Right]:
    """The rule that one of these rights is needed."""
    return frozenset(rights)


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


_ANSWERS = ("POST", "v1", "topics", "groups")


class Router:
    """Finds the route of a path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        routes = list(routes)
        by_operation = {route.operation: route for route in routes}
        self._publish, self._fetch = by_operation["publish"], by_operation["fetch"]
        self._answers = by_operation["answers"]
        # Paths without parameters are looked up; consume and ack are among them.
        self._fixed = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._compiled = [(compile_path(route.path)[0], route) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and its path's parameters; a 404 or 405 if there is none."""
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, {}
        parts = path.split("/")
        count = len(parts)
        if count == 7 and parts[6] == "answers" and (method, parts[1], parts[2], parts[4]) == _ANSWERS:
            return self._answers, {"topic": parts[3], "group": parts[5]}
        if count >= 5 and parts[-1] == "messages" and parts[2] == "topics" and parts[1] == "v1":
            if count == 5 and method == "POST":
                return self._publish, {"topic": parts[3]}
            if count == 7 and method == "GET" and parts[4] == "partitions":
                return self._fetch, {"topic": parts[3], "partition": parts[5]}
        return self._search(method, path)

    def _search(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        matches = [
            (route, match.groupdict()) for pattern, route in self._compiled if (match := pattern.fullmatch(path))
        ]
        # The most literal path is meant: `redrive` is not the id of a dead letter.
        least = min((len(parameters) for _, parameters in matches), default=0)
        meant = [(route, parameters) for route, parameters in matches if len(parameters) == least]
        for route, parameters in meant:
            if route.method == method:
                return route, parameters
        if meant:
            methods = ", ".join(route.method for route, _ in meant)
            raise HttpRefusal(405, f"This path answers to {methods} only.", (b"allow", methods.encode()))
        raise NotFound("There is nothing at this path; /openapi.json lists all of them.")
