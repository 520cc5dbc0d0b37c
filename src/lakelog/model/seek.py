"""Positions of a group in a topic, and what a seek or a skip did."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from lakelog.model.structs import Value


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


class Skipped(Value, frozen=True, kw_only=True):
    """What a skip did, or would do in a dry run.

    Attributes:
        dry_run: Whether nothing was changed.
        partition: The number of the partition.
        offset: The offset to which the group moves.
        messages: How many messages are skipped: they are counted as `cut`.
        leased: How many messages below the offset are leased, and stay with their owners.
        unreadable: The first and the last offset of what stops the group: the file of their segment is damaged or
            missing. None if the next message can be read.
    """

    dry_run: bool = False
    partition: int
    offset: int
    messages: int
    leased: int
    unreadable: tuple[int, int] | None = None


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


class GroupPositions(Value, frozen=True, kw_only=True):
    """The positions of a cursor group in a topic; empty if it has none."""

    topic: str
    positions: Sequence[GroupPosition]
