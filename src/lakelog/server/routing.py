"""Checks the table of operations when the server starts, and finds the operation of a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.routing import compile_path

from lakelog.errors import ConfigurationError, NotFound
from lakelog.server.calls import HttpError
from lakelog.wire.operations.operation import Operation

Row = Operation[Any, Any]


def check_operations(operations: Iterable[Row], handled: Iterable[str]) -> None:
    """Raise an error if an operation has no rights or no handler, or if a handler has no operation."""
    operations, handled = list(operations), set(handled)
    for operation in operations:
        if operation.rights is None:
            raise ConfigurationError(f"{operation.method} {operation.path} names no right. Say who may call it.")
        if operation.name not in handled:
            raise ConfigurationError(f"{operation.method} {operation.path} has no handler.")
    if extra := handled - {operation.name for operation in operations}:
        raise ConfigurationError(f"No operation leads to {', '.join(sorted(extra))}.")


_ANSWERS = ("POST", "v1", "topics", "groups")


class Router:
    """Finds the operation of a path and method."""

    def __init__(self, operations: Iterable[Row]) -> None:
        operations = list(operations)
        by_name = {operation.name: operation for operation in operations}
        self._publish, self._fetch = by_name["publish"], by_name["fetch"]
        self._answers = by_name["answers"]
        # Paths without parameters are looked up directly; consume and ack are among them.
        self._fixed = {(each.method, each.path): each for each in operations if "{" not in each.path}
        self._compiled = [(compile_path(each.path)[0], each) for each in operations]

    def find(self, method: str, path: str) -> tuple[Row, dict[str, str]]:
        """Return the operation and the fields in the path; raise 404 or 405 if there is no such operation."""
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

    def _search(self, method: str, path: str) -> tuple[Row, dict[str, str]]:
        matches = [(row, match.groupdict()) for pattern, row in self._compiled if (match := pattern.fullmatch(path))]
        # The most literal path wins: `redrive` is not the id of a dead letter.
        least = min((len(parameters) for _, parameters in matches), default=0)
        meant = [(row, parameters) for row, parameters in matches if len(parameters) == least]
        for row, parameters in meant:
            if row.method == method:
                return row, parameters
        if meant:
            methods = ", ".join(row.method for row, _ in meant)
            raise HttpError(405, f"This path supports {methods} only.", (b"allow", methods.encode()))
        raise NotFound("This path does not exist. /openapi.json lists all paths.")
