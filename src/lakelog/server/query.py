"""Parses the query of a call: known names only, numbers within their bounds."""

from __future__ import annotations

from collections.abc import Set

from starlette.datastructures import QueryParams

from lakelog.errors import InvalidRequest
from lakelog.server.calls import Call


def known_query(call: Call, names: Set[str]) -> QueryParams:
    """Return the parameters of the query; raise an error for an unknown or repeated name."""
    text: bytes = call.asgi.get("query_string", b"")
    query = QueryParams(text.decode("latin-1"))
    for name in query:
        if name not in names:
            raise InvalidRequest(
                f"Unknown parameter {name[:40]!r}. The parameters are {', '.join(sorted(names)) or 'none'}."
            )
    if len(query.multi_items()) > len(query):
        raise InvalidRequest("A parameter is given twice.")
    return query


def integer(query: QueryParams, name: str, default: int, lowest: int, highest: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and lowest <= int(text) <= highest):
        raise InvalidRequest(f"`{name}` must be a whole number from {lowest} to {highest}, not {text[:40]!r}.")
    return int(text)
