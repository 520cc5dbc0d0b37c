"""Audit records: who changed what, and which calls were refused because a right was missing.

A record never contains a message or a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lakelog.model.kinds import ActorKind as ActorKind
from lakelog.model.kinds import AuditOutcome as AuditOutcome
from lakelog.model.structs import Identity, Name, Positive, Request, Time, Value, check_times

AUDIT_MEMORY = timedelta(days=400)
"""How long a record is kept."""
MAX_AUDIT_PAGE = 1000
MAX_STATE_BYTES = 8 << 10
"""The largest size of `before` and of `after`."""

State = Mapping[str, Any]
"""The state of an object before or after a change, as JSON: only the parts that the change concerns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The caller of a change: a token, a caller without one, or a user of the database."""

    kind: ActorKind
    id: str = ""
    """The id of the token. Empty for the others: the database names its user."""
    name: str = ""


DATABASE_ACTOR = Actor(kind=ActorKind.DATABASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A record that is not stored yet."""

    operation: str
    text: str
    outcome: AuditOutcome
    actor: Actor = DATABASE_ACTOR
    address: str = ""
    request_id: str = ""
    objects: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    before: State | None = None
    after: State | None = None


class AuditRecord(Value, frozen=True, kw_only=True):
    """A change, or a refused call.

    Attributes:
        number: The number of the record, which is unique in the installation.
        at: When the change was made, by the clock of the database.
        operation: The operation, such as "alter_group".
        text: The change as a text, such as "altered group billing".
        outcome: The outcome of the call.
        actor_kind: The kind of caller.
        actor: The id of the token, or the user of the database.
        actor_name: The name of the token.
        address: The address of the caller, as the server sees it; of an embedded client, the name of its host.
        request_id: The id of the call, which the server's log has too.
        objects: The topics, groups and other objects that the call names, such as `{"group": "billing"}`.
        given: The other fields of the request that differ from their defaults.
        before: The changed settings or positions before the change; None if they are not known.
        after: The same after the change.
    """

    number: int
    at: datetime
    operation: str
    text: str
    outcome: AuditOutcome
    actor_kind: ActorKind
    actor: str
    actor_name: str = ""
    address: str = ""
    request_id: str = ""
    objects: Mapping[str, str] = {}
    given: Mapping[str, str] = {}
    before: State | None = None
    after: State | None = None


class AuditQuery(Request, frozen=True, kw_only=True):
    """A request for audit records, the newest first."""

    operation: Annotated[Identity, Meta(description="Only records of this operation.")] | None = None
    group: Annotated[Name, Meta(description="Only records that name this group.")] | None = None
    topic: Annotated[Name, Meta(description="Only records that name this topic.")] | None = None
    actor: Annotated[Identity, Meta(description="Only records of this token's id, or user of the database.")] | None = (
        None
    )
    since: Annotated[Time, Meta(description="Only records from this time on.")] | None = None
    until: Annotated[Time, Meta(description="Only records before this time.")] | None = None
    after: Annotated[Positive, Meta(description="The `next` of the previous page.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_AUDIT_PAGE, description="The largest number of records to return.")] = 100

    def __post_init__(self) -> None:
        check_times(self, "since", "until")


class AuditPage(Value, frozen=True, kw_only=True):
    """Audit records.

    Attributes:
        records: The records, the newest first.
        next: The value of `after` for the next page; None at the end.
    """

    records: Sequence[AuditRecord]
    next: int | None = None


def bounded(state: State | None) -> State | None:
    """Return the state as JSON holds it, or only its size if it is too large."""
    if state is None:
        return None
    encoded = msgspec.json.encode(state)
    if len(encoded) > MAX_STATE_BYTES:
        return {"left_out_bytes": len(encoded)}
    decoded: State = msgspec.json.decode(encoded)
    return decoded
