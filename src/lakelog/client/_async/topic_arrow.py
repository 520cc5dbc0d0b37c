"""The methods of a topic that return whole ranges of messages as columns: history and the newest second in one read.

The read is planned once. Segments come from the object store if this process can read it, everything else from the
server. Messages published later are not included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakelog.client._async.lake import AsyncLake
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._runtime import AsyncRecordBatches, async_offload, async_record_batches
from lakelog.client.reading.limits import Time, offsets_of, time_of
from lakelog.model.lake import Plan, PlanOptions

# Arrow takes longer to load than everything else together: only the methods that need it import it.
if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.reading.cold_files import ColdFiles
    from lakelog.client.reading.columns import Columns
    from lakelog.client.reading.read_ranges import ReadRange


class AsyncTopicArrow:
    """Reads whole ranges as Arrow; the base of a topic."""

    _state: AsyncTopicState

    async def read_arrow(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        start_offsets: Mapping[int, int] | None = None,
        end_offsets: Mapping[int, int] | None = None,
        columns: str | Sequence[str] | None = None,
        direct: bool | None = None,
    ) -> pa.Table:
        """Return the messages of all partitions as one Arrow table: history and the newest messages.

        Messages of one partition come in order, one partition after another. Expired messages and copies that were
        redriven for a group are included.

        Args:
            since: Read messages appended at this time or later: an aware datetime, ISO 8601, or how long ago, such as
                "1 day" or a timedelta. Default: from the log start.
            until: Read messages appended before this time, written like `since`. Default: up to the newest message.
            start_offsets: The first offset by partition. Other partitions are read from their log start.
            end_offsets: The end offset by partition, not included. Other partitions are read to their high watermark.
            columns: The columns, as names or as text with commas, or "*" for all. Default: partition, offset,
                appended_at, key, value, headers and content_type.
            direct: Where history comes from. True: from the object store, or the call raises why it cannot be read.
                False: through the server. Default: from the object store if this process can read it. The settings of
                S3 are those of the environment (`AWS_*`).

        Raises:
            TopicNotFound: The topic does not exist.
            OffsetOutOfRange: A named offset does not exist, or messages were removed while they were read.
        """
        from lakelog.client.reading.columns import columns_of

        options = _plan_options(since, until, start_offsets, end_offsets)
        return await AsyncArrowRead(self._state, options, columns_of(columns), direct).table()

    def scan_arrow(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        start_offsets: Mapping[int, int] | None = None,
        end_offsets: Mapping[int, int] | None = None,
        columns: str | Sequence[str] | None = None,
        direct: bool | None = None,
    ) -> AsyncRecordBatches:
        """Return the messages of `read_arrow` as record batches, which are read as the caller takes them.

        The sync client returns a `pyarrow.RecordBatchReader`, which polars, DuckDB and pandas accept. The async client
        returns an async iterator. The first batch plans the read: later messages are not included.

        Args:
            since: As for `read_arrow`.
            until: As for `read_arrow`.
            start_offsets: As for `read_arrow`.
            end_offsets: As for `read_arrow`.
            columns: As for `read_arrow`.
            direct: As for `read_arrow`.
        """
        from lakelog.client.reading.columns import arrow_schema, columns_of

        selected = columns_of(columns)
        options = _plan_options(since, until, start_offsets, end_offsets)
        read = AsyncArrowRead(self._state, options, selected, direct)
        return async_record_batches(arrow_schema(selected), read.batches())


class AsyncArrowRead:
    """One read of a range of a topic."""

    def __init__(self, state: AsyncTopicState, options: PlanOptions, columns: Columns, direct: bool | None) -> None:
        self._topic = state.name
        self._lake = AsyncLake(state.calls)
        self._options = options
        self._columns = columns
        self._direct = direct

    async def table(self) -> pa.Table:
        """Return all messages. Several files are read at the same time."""
        import pyarrow as pa

        from lakelog.client.reading.columns import arrow_schema, in_schema

        plan, ranges, files = await self._planned()
        schema = arrow_schema(self._columns)
        cold = [wanted for wanted in ranges if wanted.segment is not None] if files is not None else []
        found = await async_offload(files.read_all, cold) if files is not None else []
        read = dict(zip(cold, found, strict=True))
        batches: list[pa.RecordBatch] = []
        for wanted in ranges:
            parts = read.pop(wanted, [])
            batches += (in_schema(batch, schema) for batch in parts)
            at = wanted.first + sum(batch.num_rows for batch in parts)
            async for batch in self._from_server(plan, wanted, at):
                batches.append(in_schema(batch, schema))
        return pa.Table.from_batches(batches, schema=schema)

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield all messages. The next part of a file is read while the caller works on a batch."""
        from lakelog.client.reading.columns import arrow_schema, in_schema

        plan, ranges, files = await self._planned()
        schema = arrow_schema(self._columns)
        for wanted in ranges:
            at = wanted.first
            if files is not None and wanted.segment is not None:
                parts = files.read(wanted)
                while (part := await async_offload(next, parts, None)) is not None:
                    at += part.num_rows
                    yield in_schema(part, schema)
            async for batch in self._from_server(plan, wanted, at):
                yield in_schema(batch, schema)

    async def _planned(self) -> tuple[Plan, list[ReadRange], ColdFiles | None]:
        from lakelog.client.reading.cold_files import open_cold_files
        from lakelog.client.reading.read_ranges import ranges_of, require_whole

        plan = await self._lake.plan(self._topic, self._options)
        require_whole(plan, self._options.starts, self._options.ends)
        ranges = ranges_of(plan)
        first = next((wanted.segment for wanted in ranges if wanted.segment is not None), None)
        if first is None or self._direct is False:
            return plan, ranges, None
        return plan, ranges, await async_offload(open_cold_files, plan.store, first.path, self._columns, self._direct)

    async def _from_server(self, plan: Plan, wanted: ReadRange, at: int) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rest of a range, from the offset `at`."""
        if at < wanted.end:
            async for batch in self._lake.read_range(
                self._topic, wanted.partition, at, wanted.end, incarnation=plan.incarnation
            ):
                yield batch


def _plan_options(
    since: Time | None,
    until: Time | None,
    start_offsets: Mapping[int, int] | None,
    end_offsets: Mapping[int, int] | None,
) -> PlanOptions:
    return PlanOptions(
        starts=offsets_of(start_offsets, "start_offsets"),
        ends=offsets_of(end_offsets, "end_offsets"),
        since=time_of(since, "since"),
        until=time_of(until, "until"),
    )
