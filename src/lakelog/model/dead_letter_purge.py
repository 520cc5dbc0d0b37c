"""The purge of dead letters that are redriven or discarded."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from lakelog.model.limits import MAX_DURATION_MS
from lakelog.model.structs import Name, Request, Value

MAX_PURGED = 10_000
"""The most dead letters that one call purges."""


class PurgeDeadLettersRequest(Request, frozen=True, kw_only=True):
    """A request to delete finished dead letters of a group, of one topic or of all."""

    group: Name
    older_than_ms: Annotated[int, Meta(ge=0, le=MAX_DURATION_MS)]
    topic: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PURGED)] = MAX_PURGED


class PurgedDeadLetters(Value, frozen=True, kw_only=True):
    """The number of dead letters that were deleted. If it is the limit, there may be more."""

    purged: int
