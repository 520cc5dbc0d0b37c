"""Positions of a group in a topic: seek, skip, commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, field

from lakelog.errors import InvalidRequest
from lakelog.model.limits import MAX_PARTITIONS
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest, Position
from lakelog.model.structs import Identity, MessageId, Name, Natural, PartitionNumber, Request, Time, Value
from lakelog.model.times import to_utc


class SeekRequest(Request, frozen=True, kw_only=True):
    """Move a group in a topic, to one of `position`, `offset`, `timestamp` and `message_id`.

    Attributes:
        group: The name of the group.
        topic: The name of the topic.
        position: "earliest" or "latest".
        offset: The offset of the next message to read.
        timestamp: The first message that was appended at this time or later is the next to read.
        message_id: The message that is the next to read in its partition. Other partitions stay.
        partition: The only partition to move. Default: all.
        dry_run: True to return what would be done, and change nothing.
    """

    group: Name
    topic: Name
    position: Literal["earliest", "latest"] | None = None
    offset: Natural | None = None
    timestamp: Time | None = None
    message_id: MessageId | None = None
    partition: PartitionNumber | None = None
    dry_run: bool = False

    @property
    def target(self) -> Position | str:
        """The position to move to, or the id of a message."""
        given: list[Position | str] = []
        if self.position is not None:
            given.append(Earliest() if self.position == "earliest" else Latest())
        if self.offset is not None:
            given.append(AtOffset(self.offset))
        if self.timestamp is not None:
            given.append(AtTime(to_utc("timestamp", self.timestamp)))
        if self.message_id is not None:
            given.append(self.message_id)
        if len(given) != 1:
            raise InvalidRequest("Give one of `position` (earliest or latest), `offset`, `timestamp` and `message_id`.")
        return given[0]


class Sought(Value, frozen=True):
    """One partition of a seek.

    Attributes:
        partition: The number of the partition.
        before: The committed offset before the seek.
        after: The offset at which the group continues.
    """

    partition: int
    before: int = field(name="from")
    after: int = field(name="to")


class SeekResult(Value, frozen=True, kw_only=True):
    """The partitions that a seek moved, or would move in a dry run."""

    dry_run: bool
    partitions: Sequence[Sought]


class SkipRequest(Request, frozen=True, kw_only=True):
    """Move a group to an offset of one partition without delivering the messages below it."""

    group: Name
    topic: Name
    partition: PartitionNumber
    offset: Natural
    dry_run: bool = False


class Skipped(Value, frozen=True, kw_only=True):
    """The result of a skip, or of a dry run.

    Attributes:
        dry_run: True if this was a dry run, which changes nothing.
        partition: The number of the partition.
        offset: The offset to which the group moves.
        messages: How many messages are skipped: they are counted as `cut`.
        leased: How many messages below the offset are leased, and stay with their owners.
        unreadable: The first and the last offset of the damage that stops the group: the file of the segment is damaged
            or missing. None if the next message can be read.
    """

    dry_run: bool = False
    partition: int
    offset: int
    messages: int
    leased: int
    unreadable: tuple[int, int] | None = None


class PartitionOffset(Request, frozen=True, kw_only=True):
    """The offset to read next in a partition."""

    partition: PartitionNumber
    offset: Natural


class CommitRequest(Request, frozen=True, kw_only=True):
    """Positions that a cursor group has reached.

    Attributes:
        group: The name of the group.
        topic: The name of the topic.
        positions: The offset to read next, for each partition.
        member_id: The member that commits. A member that was replaced is refused.
        generation: The generation of the member. Needed with `member_id`.
        epoch: The epoch of the positions that were read before. After a seek, an older epoch is refused.
    """

    group: Name
    topic: Name
    positions: Annotated[tuple[PartitionOffset, ...], Meta(min_length=1, max_length=MAX_PARTITIONS)]
    member_id: Identity | None = None
    generation: Natural | None = None
    epoch: Natural | None = None

    def by_partition(self) -> dict[int, int]:
        """Return the offsets by partition. A partition that is given twice raises `InvalidRequest`."""
        found = {each.partition: each.offset for each in self.positions}
        if len(found) < len(self.positions):
            raise InvalidRequest("`positions` names a partition twice.")
        return found


class GroupPosition(Value, frozen=True):
    """The position of a cursor group in a partition.

    Attributes:
        partition: The number of the partition.
        offset: The offset to read next.
        epoch: The position epoch, which rises with each seek.
    """

    partition: int
    offset: int
    epoch: int


class PositionsRequest(Request, frozen=True, kw_only=True):
    """A request for the positions of a cursor group in a topic."""

    group: Name
    topic: Annotated[Name, Meta(description="The topic.")]


class GroupPositions(Value, frozen=True, kw_only=True):
    """The positions of a cursor group in a topic; empty if it has none."""

    topic: str
    positions: Sequence[GroupPosition]
