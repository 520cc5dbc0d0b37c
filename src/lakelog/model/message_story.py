"""The story of one message: when it was appended, and what each group did with it.

Groups keep counters and open work, not a record for each finished message. The story therefore says what follows from
the progress of a group and from its dead letters, and nothing that is not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from lakelog.model.dead_letters import DeadLetter
from lakelog.model.kinds import DeadLetterState, GroupKind
from lakelog.model.message import parse_message_id
from lakelog.model.progress import LeaseInfo, PartitionProgress
from lakelog.model.structs import Value

MAX_REDRIVES_TOLD = 20
"""The most redrives of one message that a story follows."""


class MessageState(StrEnum):
    """The state of a message in a group.

    Attributes:
        AHEAD: The group has not considered the message yet.
        LEASED: A consumer holds the message.
        OPEN: The message waits for a retry or behind another message with its key, or it is finished and an earlier
            message is not: groups do not tell these apart.
        FINISHED: The message is finished: acked, left out by the filter, expired or discarded.
        DEAD: The message is a dead letter.
        DISCARDED: The message was a dead letter, which was discarded.
    """

    AHEAD = "ahead"
    LEASED = "leased"
    OPEN = "open"
    FINISHED = "finished"
    DEAD = "dead"
    DISCARDED = "discarded"


class StoryEvent(Value, frozen=True, kw_only=True):
    """Something that happened to a message in a group.

    Attributes:
        kind: "leased", "died", "redriven", "discarded", or the state in which the message is now.
        text: The event as a sentence. It quotes nothing of the message.
        message_id: The id of the message that it happened to. A redrive publishes the message with another id.
        at: When it happened; None if that is not recorded.
        error: The reason of the failure, which may quote the message; None for other events.
    """

    kind: str
    text: str
    message_id: str
    at: datetime | None = None
    error: str | None = None


class StoryLane(Value, frozen=True, kw_only=True):
    """The part of a story that happened in one group.

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
        lanes: The part of the story in each group that reads the topic. For a redriven message, only in the group that
            it was redriven for.
    """

    id: str
    status: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    appended_at: datetime | None = None
    lineage: str | None = None
    lanes: tuple[StoryLane, ...] = ()


def lane_of(
    group: str, kind: str, message_id: str, letters: Sequence[DeadLetter], progress: Mapping[int, PartitionProgress]
) -> StoryLane:
    """Return what happened to a message in a group.

    Args:
        group: The name of the group.
        kind: The kind of the group.
        message_id: The id of the message.
        letters: The dead letters of the message in the group: its own, and then those of its redriven copies in order.
        progress: The progress of the group in the message's topic, by partition.
    """
    events = [event for letter in letters for event in _events(letter)]
    last = letters[-1] if letters else None
    if last is not None and last.state is DeadLetterState.REDRIVEN and last.redriven_to:
        message_id = last.redriven_to
    elif last is not None and last.state is DeadLetterState.DISCARDED:
        return StoryLane(group=group, state=MessageState.DISCARDED, events=tuple(events))
    elif last is not None:
        return StoryLane(group=group, state=MessageState.DEAD, events=tuple(events))
    _, partition, offset = parse_message_id(message_id)
    now = _present(kind, message_id, offset, progress.get(partition))
    return StoryLane(group=group, state=MessageState(now.kind), events=(*events, now))


def _events(letter: DeadLetter) -> list[StoryEvent]:
    attempts = f"{letter.deliveries} {'delivery' if letter.deliveries == 1 else 'deliveries'}"
    owner = f"; {letter.owner} had it last" if letter.owner else ""
    died = StoryEvent(
        kind="died",
        text=f"Became a dead letter after {attempts}{owner}.",
        message_id=letter.id,
        at=letter.at,
        error=letter.error,
    )
    if letter.state is DeadLetterState.REDRIVEN:
        text = f"Redriven as {letter.redriven_to}." if letter.redriven_to else "Redriven."
        return [died, StoryEvent(kind="redriven", text=text, message_id=letter.id)]
    if letter.state is DeadLetterState.DISCARDED:
        return [died, StoryEvent(kind="discarded", text="Discarded.", message_id=letter.id)]
    return [died]


def _present(kind: str, message_id: str, offset: int, progress: PartitionProgress | None) -> StoryEvent:
    """Return the state of a message that is no dead letter, as an event."""
    if progress is None:
        return StoryEvent(kind=MessageState.AHEAD, text="The group has not begun to read.", message_id=message_id)
    if offset < progress.committed:
        text = "Finished: all messages up to it are acked, left out by the filter, expired or given up."
        if kind == GroupKind.CURSOR:
            text = "Read: the group has committed a position behind it."
        return StoryEvent(kind=MessageState.FINISHED, text=text, message_id=message_id)
    if (lease := _lease_on(progress, offset)) is not None:
        text = f"Leased by {lease.owner} until {lease.expires_at.isoformat(timespec='seconds')}."
        return StoryEvent(kind=MessageState.LEASED, text=text, message_id=message_id, at=lease.granted_at)
    if offset >= progress.frontier:
        text = f"Not delivered yet: {offset - progress.frontier} messages of the partition are before it."
        return StoryEvent(kind=MessageState.AHEAD, text=text, message_id=message_id)
    if not progress.waiting and not progress.skipped:
        text = "Finished; an earlier message of the partition is not."
        return StoryEvent(kind=MessageState.FINISHED, text=text, message_id=message_id)
    text = (
        "Waits for a retry or behind another message with its key, or is finished: in the partition, "
        f"{progress.waiting} messages wait for a retry, and {progress.skipped} behind their key."
    )
    return StoryEvent(kind=MessageState.OPEN, text=text, message_id=message_id)


def _lease_on(progress: PartitionProgress, offset: int) -> LeaseInfo | None:
    return next(
        (lease for lease in progress.leases if any(first <= offset <= last for first, last in lease.offsets)), None
    )
