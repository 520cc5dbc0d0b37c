"""The caller of an operation."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.model.audit import DATABASE_ACTOR, Actor
from lakelog.model.topic import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of an operation: the environment that it may use, and the address of its machine, if known.

    `token` is the id of its token; empty for an embedded client, and on a server without authentication. `actor` and
    `request_id` are for audit records.
    """

    scope: Scope
    host: str = ""
    token: str = ""
    actor: Actor = DATABASE_ACTOR
    request_id: str = ""
