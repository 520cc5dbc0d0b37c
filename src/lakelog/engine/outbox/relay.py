"""Moves messages from an outbox to the log, each once and in order.

A message is moved when it is visible: a read returns the messages of transactions that the read before did not see. The
statement that appends messages records their ids. After an error, and when another relay takes over, the relay gets new
epochs from all cells, so that no earlier statement can append any more, reads the whole outbox again, and leaves out
what is recorded. It needs no state of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from lakelog.batches import encode_messages, partition_of
from lakelog.engine.log.publish import Publisher
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.engine.log.validators import Validators
from lakelog.engine.outbox.rows import (
    definite,
    is_plain_row,
    position_of,
    scheduled_message,
    storable_message,
    to_message,
)
from lakelog.errors import InvalidBatch, LakelogError, Unavailable
from lakelog.model.message import (
    Message,
    fault_of,
)
from lakelog.model.outbox import OutboxMessageId, RejectionSource
from lakelog.model.topic import Scope, Topic
from lakelog.storage.outbox import (
    NOTHING_SEEN,
    TRIM_RECORDS,
    OutboxPage,
    OutboxRow,
    OutboxSource,
    RelayedAppend,
    StoredRejection,
)
from lakelog.storage.store import DEFAULT_CELL, Append, Appended, Catalog, PartitionStore, Payload, Refusal

_TRIES = 5
_PARTITIONS_PER_STATEMENT = 32
_ROTATE_ROWS = 100_000

Wrote = Callable[[int, int, int, int], None]
"""Announces messages that were appended: cell, partition id, first offset and count."""


_Refusals = dict[OutboxRow, LakelogError]


class NoOutbox(Exception):
    """The error for a database without an outbox."""


class RelayReplaced(Exception):
    """The error for a relay whose outbox has a newer relay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayContext:
    """The parts of the engine that a relay uses."""

    catalog: Catalog
    cells: Mapping[int, PartitionStore]
    topics: Topics
    publisher: Publisher
    validators: Validators
    wrote: Wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The outbox, its environment, and the epoch of this relay in each cell."""

    outbox_id: int
    scope: Scope
    epochs: Mapping[int, int]


class OutboxRelay:
    """The relay of one outbox. Call `poll` repeatedly, and `tidy` from time to time."""

    def __init__(self, source: OutboxSource, context: RelayContext) -> None:
        self._source = source
        self._context = context
        self._opened: _Opened | None = None
        self._moved = NOTHING_SEEN
        """The transactions whose messages were all moved."""
        self._early: frozenset[int] = frozenset()
        """Numbers of messages that were moved although `_moved` does not show their transactions."""
        self._is_careful = True
        """Whether messages may be in the log already."""
        self._started_at: datetime | None = None
        self._since_rotation = 0
        self.relayed = 0
        """The number of messages that were moved."""
        self.rejected = 0
        """The number of messages that were rejected."""

    async def poll(self) -> int:
        """Move the messages that have become visible, and return how many.

        After an error, the next call begins again. It is safe to cancel anywhere.
        """
        opened = self._opened
        self._opened = None
        if opened is None:
            opened = await self._open()
        count = await self._move_window(opened)
        self._opened = opened
        return count

    async def tidy(self, *, rotate: bool = True) -> None:
        """Empty tables whose messages are all in the log. With `rotate`, or many messages, begin a new table."""
        if self._opened is not None:
            await self._source.empty(self._moved)
            is_due = self._since_rotation if rotate else self._since_rotation > _ROTATE_ROWS
            if is_due and await self._source.rotate():
                self._since_rotation = 0

    async def trim(self) -> bool:
        """Let the log forget messages that were moved long ago and are no longer in the outbox.

        Return whether it has forgotten all of them. A call forgets a limited number, because no message is moved
        during it.
        """
        is_done = True
        if self._opened is not None:
            oldest = await self._source.oldest()
            for store in self._context.cells.values():
                before = (oldest or await store.clock()) - timedelta(minutes=5)
                trimmed = await store.relays.relayed_trim(self._opened.outbox_id, before)
                is_done = is_done and trimmed < TRIM_RECORDS
        return is_done

    async def close(self) -> None:
        self._opened = None
        await self._source.close()

    async def _open(self) -> _Opened:
        settings = await self._source.open()
        if settings is None:
            raise NoOutbox(
                f"PostgreSQL at {self._source.address} has no outbox. Create it with `lakelog outbox install`."
            )
        scope = await self._context.catalog.scope_create(settings.project, settings.environment)
        cells = self._context.cells
        raised = await asyncio.gather(
            *(store.relays.epoch_raise(settings.outbox_id, scope) for store in cells.values())
        )
        self._moved, self._early, self._is_careful, self._started_at = NOTHING_SEEN, frozenset(), True, None
        return _Opened(outbox_id=settings.outbox_id, scope=scope, epochs=dict(zip(cells, raised, strict=True)))

    async def _move_window(self, opened: _Opened) -> int:
        """Move everything that one read sees, page by page."""
        page = first = await self._read((0, 0))
        early: set[int] = set()
        count = 0
        while True:
            rows = [row for row in page.rows if row.number not in self._early]
            if self._is_careful:
                rows = await self._without_relayed(opened, rows)
            if rows:
                await self._move(opened, rows)
                count += len(rows)
            # A later page also has messages of transactions that the first read did not see.
            early.update(row.number for row in page.rows if not first.snapshot.shows(row.transaction))
            if page.is_last:
                break
            page = await self._read((page.rows[-1].transaction, page.rows[-1].number))
        self._moved, self._early, self._is_careful = first.snapshot, frozenset(early), False
        self._since_rotation += count
        return count

    async def _read(self, after: tuple[int, int]) -> OutboxPage:
        page = await self._source.read(self._moved, after)
        if self._started_at not in (None, page.started_at):
            # It may have been restored from a backup: messages that were moved may be there again.
            raise Unavailable(f"PostgreSQL at {self._source.address} was started again.")
        self._started_at = page.started_at
        return page

    async def _without_relayed(self, opened: _Opened, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        marks = [row.mark for row in rows]
        cells = self._context.cells.values()
        known = await asyncio.gather(*(store.relays.relayed(opened.outbox_id, marks) for store in cells))
        return [row for row in rows if not any(row.mark in each for each in known)]

    async def _move(self, opened: _Opened, rows: Sequence[OutboxRow]) -> None:
        """Move messages in the order of their numbers, which is that of one connection and of one cause."""
        refusals: _Refusals = {}
        ordered = sorted(rows, key=lambda row: row.number)
        for is_plain, run in groupby(ordered, key=is_plain_row):
            move = self._append if is_plain else self._publish
            refusals.update(await move(opened, list(run)))
        if refusals:
            await self._reject(opened, refusals)
        self.relayed += len(rows) - len(refusals)
        self.rejected += len(refusals)

    async def _publish(self, opened: _Opened, rows: Sequence[OutboxRow]) -> _Refusals:
        """Publish messages with idempotency keys and delayed ones, which can be repeated. Return the refused ones."""
        refused: _Refusals = {}
        positions: dict[tuple[int, int], tuple[int, int]] = {}
        for topic, run in groupby(rows, key=lambda row: row.topic):
            some = list(run)
            try:
                messages = [scheduled_message(opened.outbox_id, row) for row in some]
                answers = await self._context.publisher.messages(opened.scope, topic, messages)
            except LakelogError as error:
                answers = [error] * len(some)
            for row, answer in zip(some, answers, strict=True):
                if isinstance(answer, LakelogError):
                    refused[row] = definite(answer)
                else:
                    positions[row.mark] = position_of(answer)
        relays = self._context.cells[DEFAULT_CELL].relays
        if positions and not await relays.record(opened.outbox_id, opened.epochs[DEFAULT_CELL], positions):
            raise self._replaced()
        return refused

    async def _append(self, opened: _Opened, rows: Sequence[OutboxRow]) -> _Refusals:
        """Append messages and record them. Return the refused ones."""
        messages = {row: to_message(row) for row in rows}
        refused: _Refusals = {row: fault for row, message in messages.items() if (fault := fault_of(message))}
        waiting = [row for row in rows if row not in refused]
        for _ in range(_TRIES):
            shares = await self._shares(opened, waiting, messages, refused)
            appends = {share: append for share in shares if (append := share.encoded(messages, refused))}
            again = await self._append_once(opened, appends)
            if not again:
                return refused
            left = {row for share in again for row in share.rows}
            waiting = [row for row in waiting if row in left and row not in refused]
        raise Unavailable("The topics of the messages kept changing. Retry.")

    async def _shares(
        self, opened: _Opened, rows: Sequence[OutboxRow], messages: Mapping[OutboxRow, Message], refused: _Refusals
    ) -> list[_Share]:
        """Return the messages by partition. Those that no partition takes are added to `refused`."""
        topics: dict[str, Topic | LakelogError] = {}
        shares: dict[int, _Share] = {}
        for row in rows:
            if row.topic not in topics:
                topics[row.topic] = await self._find(opened.scope, row.topic)
            topic = topics[row.topic]
            if isinstance(topic, Topic) and (row.partition or 0) >= topic.partitions:
                topic = topics[row.topic] = await self._find(opened.scope, row.topic, row.partition or 0)
            partition = topic if isinstance(topic, LakelogError) else self._choose(topic, messages[row])
            if isinstance(topic, LakelogError) or isinstance(partition, LakelogError):
                refused[row] = definite(partition if isinstance(partition, LakelogError) else topic)  # type: ignore[arg-type]
                continue
            pid = topic.pid(partition)
            if pid not in shares:
                shares[pid] = _Share(topic=topic, pid=pid, cell=topic.cells[partition], rows=[])
            shares[pid].rows.append(row)
        for share in shares.values():
            await self._validate(share, messages, refused)
        return [share for share in shares.values() if share.rows]

    async def _validate(self, share: _Share, messages: Mapping[OutboxRow, Message], refused: _Refusals) -> None:
        """Refuse the messages of a share whose values do not match the schema of their topic."""
        if share.topic.settings.schema is not None:
            some = {place: messages[row] for place, row in enumerate(share.rows)}
            found = await self._context.validators.refusals(share.topic, some)
            refused.update({share.rows[place]: error for place, error in found.items()})
            share.rows[:] = [row for row in share.rows if row not in refused]

    async def _find(self, scope: Scope, name: str, partition: int = 0) -> Topic | LakelogError:
        try:
            return await self._context.topics.find(scope, name, partition=partition)
        except LakelogError as error:
            return error

    def _choose(self, topic: Topic, message: Message) -> int | LakelogError:
        if message.partition is not None:
            is_there = 0 <= message.partition < topic.partitions
            return message.partition if is_there else no_partition(topic, message.partition)
        if message.key is not None:
            return partition_of(message.key, topic.partitions)
        return self._context.publisher.take_turns(topic, 1) % topic.partitions

    async def _append_once(self, opened: _Opened, appends: Mapping[_Share, RelayedAppend]) -> list[_Share]:
        """Append the shares, and return those that were refused because their topic changed."""
        by_cell: dict[int, list[_Share]] = {}
        for share in appends:
            by_cell.setdefault(share.cell, []).append(share)
        changed = await asyncio.gather(
            *(self._append_in(opened, cell, some, appends) for cell, some in by_cell.items())
        )
        again = [share for some in changed for share in some]
        for share in again:
            self._context.topics.forget(share.topic.incarnation)
        return again

    async def _append_in(
        self, opened: _Opened, cell: int, shares: Sequence[_Share], appends: Mapping[_Share, RelayedAppend]
    ) -> list[_Share]:
        changed: list[_Share] = []
        relays = self._context.cells[cell].relays
        for at in range(0, len(shares), _PARTITIONS_PER_STATEMENT):
            some = shares[at : at + _PARTITIONS_PER_STATEMENT]
            answers = await relays.relay(opened.outbox_id, opened.epochs[cell], [appends[share] for share in some])
            if answers is None:
                raise self._replaced()
            for share, answer in zip(some, answers, strict=True):
                if isinstance(answer, Appended):
                    self._context.wrote(cell, answer.pid, answer.base, len(appends[share].marks))
                    continue
                changed.append(share)
                if answer.refusal is Refusal.MISSING:
                    await self._context.topics.ensure_heads(share.topic)
        return changed

    async def _reject(self, opened: _Opened, refusals: _Refusals) -> None:
        stored = {
            row.mark: StoredRejection(
                message_id=str(OutboxMessageId(opened.outbox_id, *row.mark)),
                source=RejectionSource.OUTBOX,
                topic=row.topic,
                code=error.code,
                reason=error.detail,
                payload=encode_messages([storable_message(row)]),
                partition=row.partition,
            )
            for row, error in sorted(refusals.items(), key=lambda each: each[0].number)
        }
        relays = self._context.cells[DEFAULT_CELL].relays
        if not await relays.reject(opened.outbox_id, opened.epochs[DEFAULT_CELL], opened.scope, stored):
            raise self._replaced()

    def _replaced(self) -> RelayReplaced:
        return RelayReplaced(f"Another relay moves the messages of the outbox at {self._source.address}.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Share:
    """Messages of one partition, in order."""

    topic: Topic
    pid: int
    cell: int
    rows: list[OutboxRow]

    def encoded(self, messages: Mapping[OutboxRow, Message], refused: _Refusals) -> RelayedAppend | None:
        """Return the append. Messages that cannot be encoded are added to `refused`; None if no other is left."""
        rows = self.rows
        try:
            data = encode_messages([messages[row] for row in rows])
        except InvalidBatch:
            bad = {row: error for row in rows if (error := _fault_of_encoding(messages[row]))}
            refused.update(bad)
            rows = [row for row in rows if row not in bad]
            if not rows:
                return None
            data = encode_messages([messages[row] for row in rows])
        append = Append(pid=self.pid, epoch=self.topic.epoch, payloads=[Payload(data=data, count=len(rows))])
        return RelayedAppend(append=append, marks=[row.mark for row in rows])


def _fault_of_encoding(message: Message) -> LakelogError | None:
    try:
        encode_messages([message])
    except InvalidBatch as error:
        return error
    return None
