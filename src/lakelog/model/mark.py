"""Marks: events on the timeline of topics and groups, such as deploys, pauses and seeks.

Marks are audit records: a deploy is recorded by its caller, and changes are recorded when they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from lakelog.model.structs import Name, Positive, Request, Time, Value, check_times

DEPLOY = "mark"
"""The kind of a mark that a caller made."""
MARKED = (
    *(DEPLOY, "create_topic", "alter_topic", "purge_topic", "delete_topic", "set_schema", "remove_schema"),
    *("create_group", "alter_group", "delete_group", "seek", "skip"),
    *("pause_group", "resume_group", "pause_topic", "resume_topic"),
    *("redrive", "discard_dead_letters", "purge_dead_letters"),
)
"""The kinds of marks: operations that change what a topic or a group does."""
MAX_MARKS = 1000

MarkText = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\u0000]+$")]


class Mark(Value, frozen=True, kw_only=True):
    """An event on the timeline.

    Attributes:
        number: The number of the mark, which is unique in the installation.
        at: When it happened, by the clock of the database.
        kind: "mark" for a mark of a caller; otherwise the operation, such as "pause_group".
        text: The text, such as "deploy 1.4" or "paused group billing".
        group: The group that it concerns; None if it concerns no single group.
        topic: The topic that it concerns; None if it concerns no single topic.
        actor: The name or the id of the caller.
    """

    number: int
    at: datetime
    kind: str
    text: str
    group: str | None = None
    topic: str | None = None
    actor: str = ""


class CreateMarkRequest(Request, frozen=True, kw_only=True):
    """A request for a mark.

    Attributes:
        text: The text, such as "deploy 1.4": 1 to 200 characters.
        group: The group that it concerns. Default: all groups.
        topic: The topic that it concerns. Default: all topics.
    """

    text: MarkText
    group: Name | None = None
    topic: Name | None = None


class MarkQuery(Request, frozen=True, kw_only=True):
    """A request for marks, the newest first. Marks that concern no single group or topic are always returned."""

    group: Annotated[Name, Meta(description="Only marks of this group, and of `topic` if it is given.")] | None = None
    topic: Annotated[Name, Meta(description="Only marks of this topic.")] | None = None
    since: Annotated[Time, Meta(description="Only marks from this time on.")] | None = None
    until: Annotated[Time, Meta(description="Only marks before this time.")] | None = None
    after: Annotated[Positive, Meta(description="The `next` of the previous page.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_MARKS, description="The largest number of marks to return.")] = 100

    def __post_init__(self) -> None:
        check_times(self, "since", "until")


class MarkPage(Value, frozen=True, kw_only=True):
    """Marks.

    Attributes:
        marks: The marks, the newest first.
        next: The value of `after` for the next page; None at the end.
    """

    marks: Sequence[Mark]
    next: int | None = None
