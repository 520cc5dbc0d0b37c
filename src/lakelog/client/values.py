"""The arguments and results of the client's calls, as frozen values. Messages that were read are in `messages`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from lakelog.client.reading.messages import ReceivedMessage
    from lakelog.errors import LakelogError
    from lakelog.model.lease import Answered
    from lakelog.wire.leases import LeaseHead, LeasesHead

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[T]):
    """A message for `publish_many`: a value with the other arguments of `publish`.

    Args:
        value: The value.
        key: Messages with the same key are stored in one partition, in order. Default: what the topic's `key` function
            or `key_field` gives.
        headers: Text by name. Default: none.
        partition: The partition, from 0. Default: chosen by the key.
        idempotency_key: A text that names the message for the topic. Publishing it again returns the first receipt.
        correlation_id: A text that readers see beside the value. Default: none.
        content_type: The content type of the stored bytes. Default: by the kind of the value.
        expires: When groups of workers stop receiving the message, as for `publish`. Default: never.
        delay: Publish the message after this time, in seconds or as a timedelta. Default: at once.
        deliver_at: Publish the message at this time. Default: at once.
    """

    value: T
    key: str | bytes | int | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    partition: int | None = field(default=None, kw_only=True)
    idempotency_key: str | None = field(default=None, kw_only=True)
    correlation_id: str | None = field(default=None, kw_only=True)
    content_type: str | None = field(default=None, kw_only=True)
    expires: timedelta | datetime | None = field(default=None, kw_only=True)
    delay: timedelta | float | None = field(default=None, kw_only=True)
    deliver_at: datetime | None = field(default=None, kw_only=True)


class Run(NamedTuple):
    """Messages with successive offsets in one partition.

    Attributes:
        partition: The number of the partition.
        offset: The offset of the first message.
        count: How many messages there are.
    """

    partition: int
    offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody asks of a run


def runs_of(places: Iterable[tuple[int, int]]) -> list[Run]:
    """Return the runs of pairs of partition and offset, sorted by partition and offset."""
    runs: list[Run] = []
    for partition, offset in sorted(places):
        last = runs[-1] if runs else None
        if last is not None and last.partition == partition and last.offset + last.count == offset:
            runs[-1] = last._replace(count=last.count + 1)
        else:
            runs.append(Run(partition, offset, 1))
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult(Generic[T]):
    """The result of `fetch`: messages of one partition.

    Attributes:
        messages: The messages, in order.
        next_offset: The offset at which to continue.
        log_start: The offset of the oldest message of the partition.
        high_watermark: The offset of the next message to be published.
    """

    messages: Sequence[ReceivedMessage[T]]
    next_offset: int
    log_start: int
    high_watermark: int

    def __repr__(self) -> str:
        ends = f"log_start={self.log_start}, high_watermark={self.high_watermark}"
        return f"FetchResult({len(self.messages)} messages, next_offset={self.next_offset}, {ends})"


class ReplayedPartition(NamedTuple):
    """One partition of a replay.

    Attributes:
        partition: The number of the partition.
        start: The first offset of the range.
        position: The offset of the next message: all messages of the range below it are finished.
        end: The end of the range, not included.
    """

    partition: int
    start: int
    position: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """How far a replay is.

    Attributes:
        topic: The name of the topic.
        name: The name of the replay; None for one without a name.
        dry_run: True if this was a dry run, which calls no handler.
        handled: Messages that the handler has handled since this call began.
        failed: Messages for which the handler raised an error, and that `on_error` accepted, since this call began.
        retired: Messages of the range that retention removed before they were read, since this call began.
        partitions: The range and the position in each partition.
    """

    topic: str
    name: str | None = None
    dry_run: bool = False
    handled: int = 0
    failed: int = 0
    retired: int = 0
    partitions: Sequence[ReplayedPartition] = ()

    @property
    def messages(self) -> int:
        """The number of messages of the range."""
        return sum(each.end - each.start for each in self.partitions)

    @property
    def remaining(self) -> int:
        """The number of messages of the range that are not finished."""
        return sum(each.end - each.position for each in self.partitions)

    @property
    def is_complete(self) -> bool:
        """Whether all messages of the range are finished."""
        return self.remaining == 0

    def __repr__(self) -> str:
        done = f"handled={self.handled}, failed={self.failed}, retired={self.retired}"
        return f"ReplayProgress(topic={self.topic!r}, {done}, remaining={self.remaining} of {self.messages})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Leases before their messages are decoded.

    Attributes:
        head: The leases, without their messages.
        payloads: The stored batches of all leases, in the order of the head.
        answered: One outcome for each answer of the request, in order.
        refusal: The reason why a call with answers got no lease. Messages may have been leased and
            released, which counts as a delivery. None if there was no error.
        leases: The leases of the head.
    """

    head: LeasesHead
    payloads: Sequence[bytes | memoryview]
    answered: Sequence[Answered | LakelogError] = ()
    refusal: LakelogError | None = None

    @property
    def leases(self) -> Sequence[LeaseHead]:
        return self.head.leases
