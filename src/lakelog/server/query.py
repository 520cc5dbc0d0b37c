"""Parses the query of a call: known names only, numbers and times within their bounds."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.datastructures import QueryParams

from lakelog.errors import InvalidRequest
from lakelog.server.calls import Call
from lakelog.server.messages import to_utc

_TIME = msgspec.json.Decoder(Annotated[datetime, Meta(tz=True)])


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


def parse_time(name: str, text: str) -> datetime:
    # A plus sign that was not escaped arrives as a space.
    quoted = msgspec.json.encode(text.strip().replace(" ", "+"))
    try:
        return to_utc(name, _TIME.decode(quoted))
    except msgspec.MsgspecError as error:
        raise InvalidRequest(
            f"`{name}` is not an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z: {error}."
        ) from error
