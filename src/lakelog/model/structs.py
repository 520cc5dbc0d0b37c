"""The base classes of requests and replies, which are the same in the engine, over HTTP and in the client.

Constraints are part of the types. msgspec checks them while it decodes; `checked` checks a request that was built in
this process, so that the embedded client enforces the limits that a server enforces.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from lakelog.errors import InvalidRequest
from lakelog.model.limits import MAX_DURATION_MS, MAX_NAME_LENGTH, MAX_OWNER_BYTES, MAX_PARTITIONS
from lakelog.model.message import MAX_MESSAGE_ID_LENGTH

Name = Annotated[str, Meta(pattern=r"^[a-z0-9._-]{1,120}$", max_length=MAX_NAME_LENGTH)]
"""The name of a topic, a group or a pipeline."""
Positive = Annotated[int, Meta(ge=1, le=2**62)]
Natural = Annotated[int, Meta(ge=0, le=2**62)]
Duration = Annotated[int, Meta(ge=1, le=MAX_DURATION_MS)]
"""A time above zero, in milliseconds."""
PartitionNumber = Annotated[int, Meta(ge=0, lt=MAX_PARTITIONS)]
MessageId = Annotated[str, Meta(max_length=MAX_MESSAGE_ID_LENGTH)]
Text = Annotated[str, Meta(max_length=64 << 10)]
# PostgreSQL cannot store the character 0 in a text.
Identity = Annotated[str, Meta(min_length=1, max_length=MAX_OWNER_BYTES, pattern="^[^\\u0000]+$")]
"""The id of an owner, a member or a request: any text, chosen by the caller."""
Time = Annotated[datetime, Meta(tz=True)]
"""A time with its time zone; RFC 3339 in JSON."""

Given = TypeVar("Given", bound="Request")


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request of a caller. An unknown field is refused, because it is a mistake of the caller."""


class Value(Struct, frozen=True, kw_only=True):
    """A reply to a caller. A client ignores fields that it does not know."""


def checked(request: Given) -> Given:
    """Return the request if it is within the limits of its type; otherwise raise `InvalidRequest`."""
    try:
        return msgspec.json.decode(msgspec.json.encode(request), type=type(request))
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidRequest(f"{error}.") from error


def check_times(value: object, *names: str) -> None:
    """Refuse a time that UTC cannot hold."""
    for name in names:
        time = getattr(value, name)
        try:
            if time is not None:
                time.astimezone(UTC)
        except OverflowError as error:
            raise InvalidRequest(f"`{name}` is outside of the years 1 to 9999.") from error
