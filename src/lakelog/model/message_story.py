"""The story of one message: when it was appended, and what each group did with it.

Groups keep a record of each delivery that did not end well for 30 days, and none of the others. The story says what
follows from these records, from dead letters and from the present state, and nothing that is not recorded.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from lakelog.model.structs import MessageId, Name, Request, Value


class StoryQuery(Request, frozen=True, kw_only=True):
    """A request for the story of a message."""

    message_id: MessageId
    topic: Annotated[Name, Meta(description="The topic of the message. Default: it is found by the id.")] | None = None


class MessageState(StrEnum):
    """The state of a message in a group.

    Attributes:
        AHEAD: The group has not considered the message yet.
        LEASED: A consumer holds the message.
        WAITING: The message waits for its next attempt.
        BLOCKED: The message waits behind an earlier message with its key.
        FINISHED: The message is finished: acked, left out by the filter, expired, skipped, discarded, or removed by
            retention.
        DEAD: The message is a dead letter.
        DISCARDED: The message was a dead letter, which was discarded.
    """

    AHEAD = "ahead"
    LEASED = "leased"
    WAITING = "waiting"
    BLOCKED = "blocked"
    FINISHED = "finished"
    DEAD = "dead"
    DISCARDED = "discarded"


class StoryEvent(Value, frozen=True, kw_only=True):
    """Something that happened to a message in a group.

    Attributes:
        kind: "leased", "failed", "timed_out", "lost", "died", "acked", "discarded" or "redriven"; or the state in which
            the message is now.
        text: The event as a sentence. It quotes nothing of the message.
        message_id: The id of the message that it happened to. A redrive publishes the message with another id.
        at: When it happened; None if that is not recorded.
        owner: The consumer; None for events without one.
        attempt: The number of the delivery, from 1; None for events without one.
        failures: How often the message had failed then; None for events without a delivery.
        next_at: When the next attempt is due; None if there is none, or if the time is not known.
        lease_ms: How long the consumer had the message, in milliseconds; None for other events.
        error: The reason of the failure, which may quote the message; None for other events.
        traceback: The traceback that the consumer sent, shortened; None if it sent none.
        fingerprint: The fingerprint of the failure; None for other events.
    """

    kind: str
    text: str
    message_id: str
    at: datetime | None = None
    owner: str | None = None
    attempt: int | None = None
    failures: int | None = None
    next_at: datetime | None = None
    lease_ms: int | None = None
    error: str | None = None
    traceback: str | None = None
    fingerprint: str | None = None


class StoryLane(Value, frozen=True, kw_only=True):
    """The events of a message in one group.

    Attributes:
        group: The name of the group.
        state: The state of the message now; of a redriven message, the state of its newest copy.
        events: The events, the oldest first.
    """

    group: str
    state: MessageState
    events: tuple[StoryEvent, ...]


class MessageStory(Value, frozen=True, kw_only=True):
    """The story of one message.

    Attributes:
        id: The id that was asked for.
        status: "published"; "removed" if retention removed the message; "scheduled", "rejected" or "unknown" as in
            `MessageStatus`.
        topic: The topic; None if the message is not published.
        partition: The partition; None if the message is not published.
        offset: The offset in the partition; None if the message is not published.
        appended_at: When the message was appended; None if it cannot be read.
        lineage: For a redriven message, `<id>#<n>`: the id of the message that was first published, and the number of
            redrives since. None for any other message.
        lanes: The events in each group that reads the topic. A redriven message has a lane in the group that it was
            redriven for only.
    """

    id: str
    status: Literal["published", "removed", "scheduled", "rejected", "unknown"]
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    appended_at: datetime | None = None
    lineage: str | None = None
    lanes: tuple[StoryLane, ...] = ()
