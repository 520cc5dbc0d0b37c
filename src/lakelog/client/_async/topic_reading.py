"""Reads a topic: one partition from a position, or all partitions as a stream. Groups are in `topic_groups`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.reading import FetchSource, fetch_batches, read_on, read_to_end
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.reading.positions import Offset, Start, position_of
from lakelog.client.values import FetchResult
from lakelog.model.arguments import check_seconds, check_whole
from lakelog.model.fetch import FetchedBatches
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_PARTITIONS
from lakelog.model.position import Position

# Arrow takes longer to load than everything else together: only the methods that need it import it.
if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class AsyncTopicReading(Generic[T]):
    """The reading methods of `AsyncTopic`."""

    _state: AsyncTopicState
    _builder: MessageBuilder[T]

    async def fetch(
        self,
        partition: int = 0,
        *,
        offset: Offset | None = None,
        time: datetime | None = None,
        last: int | None = None,
        limit: int = 1000,
        wait: timedelta | float = 0.0,
    ) -> FetchResult[T]:
        """Return messages of one partition, in order. To read on, fetch again at `next_offset` of the result.

        Without `offset`, `time` and `last`, reading begins at the oldest message. Give at most one of them.

        Args:
            partition: The partition, from 0. Default: 0. A missing partition raises `PartitionNotFound`.
            offset: The offset of the first message, "earliest" or "latest". An offset below the oldest message or
                above the end raises `OffsetOutOfRange`.
            time: Begin at the first message that was appended at this time or later: a datetime with a time zone.
            last: Begin that many messages before the end, 0 or more; at the oldest message if there are fewer.
            limit: Messages to return at most, from 1 to 10,000. Default: 1000. A result is smaller where messages are
                large: it holds about 16 MiB.
            wait: How long to wait for a message if there is none yet, in seconds or as a timedelta. Default: 0, which
                returns at once. After the time, the result is empty.
        """
        from lakelog.client.reading.decoding import result_of

        fetched = await self._fetch(partition, position_of(offset, time, last), limit, wait)
        return result_of(fetched, self._state.name, self._builder.codec)

    async def fetch_arrow(
        self,
        partition: int = 0,
        *,
        offset: Offset | None = None,
        time: datetime | None = None,
        last: int | None = None,
        limit: int = MAX_BATCH_MESSAGES,
        wait: timedelta | float = 0.0,
    ) -> pa.Table:
        """Return messages of one partition as an Arrow table. To read on, fetch again at the last `offset` + 1.

        Args:
            partition: The partition, from 0. Default: 0.
            offset: The offset of the first message, "earliest" or "latest". Default: the oldest message.
            time: Begin at the first message that was appended at this time or later.
            last: Begin that many messages before the end.
            limit: Messages to return at most, from 1 to 10,000. Default: 10,000.
            wait: How long to wait for a message if there is none yet, in seconds or as a timedelta. Default: 0.
        """
        from lakelog.client.reading.decoding import table_of

        return table_of(await self._fetch(partition, position_of(offset, time, last), limit, wait))

    def read(self, *, from_: Start = "earliest", follow: bool = False) -> AsyncIterator[ReceivedMessage[T]]:
        """Iterate over the messages of all partitions. Messages of one partition come in order.

        Args:
            from_: Where to begin in each partition: "earliest" (the default), "latest", a datetime with a time zone, a
                number of messages before the end, or a dict of partition to offset (others begin at the oldest
                message).
            follow: Wait for further messages at the end. Default: False, which stops at the messages that exist when
                reading begins.
        """
        source = FetchSource(state=self._state, codec=self._builder.codec)
        return read_on(source, from_) if follow else read_to_end(source, from_)

    def tail(self, *, from_: Start = "latest", follow: bool = True) -> AsyncIterator[ReceivedMessage[T]]:
        """Iterate over the messages that arrive from now on.

        Args:
            from_: Where to begin, as for `read`. Default: "latest". `from_=10` begins with the last ten messages of
                each partition.
            follow: Wait for further messages at the end. Default: True. With False, it is the same as `read`.
        """
        return self.read(from_=from_, follow=follow)

    async def _fetch(self, partition: int, position: Position, limit: int, wait: timedelta | float) -> FetchedBatches:
        check_whole("partition", partition, 0, MAX_PARTITIONS - 1)
        check_whole("limit", limit, 1, MAX_BATCH_MESSAGES)
        return await fetch_batches(self._state, partition, position, limit, check_seconds("wait", wait))
