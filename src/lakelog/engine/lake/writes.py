"""Writes: stage invisible batches, decide once which attempts count, and move their batches into the log, cell by cell.

The decision in the catalog is the only point of no return. The caller, a second run of the write, or the agent that
finishes interrupted writes can repeat all later steps.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from lakelog import failpoints
from lakelog.engine.lake.staged_moves import StagedMoves
from lakelog.engine.log.threads import Threads
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.engine.log.validators import Validators
from lakelog.errors import Conflict, EpochChanged, InvalidBatch, LakelogError, Unavailable
from lakelog.model import write
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Scope, Topic
from lakelog.storage.staging import PromoteStatus, StagedBatch, WriteDecision
from lakelog.storage.store import Catalog, PartitionStore, Payload

_PROMOTIONS_AT_ONCE = 4
"""The largest number of concurrent promotions per cell. Each is a commit, and publishers need capacity too."""


class Writes:
    """Staged writes into any topic; one per engine."""

    def __init__(
        self,
        catalog: Catalog,
        cells: dict[int, PartitionStore],
        topics: Topics,
        validators: Validators,
        threads: Threads,
        grew: Callable[[int, int, int, int], None],
    ) -> None:
        """Create the writes. `grew` gets the cell, partition, first offset and count of each append."""
        self._catalog = catalog
        self._cells = cells
        self._topics = topics
        self._validators = validators
        self._moves = StagedMoves(cells, threads)
        self._grew = grew

    async def stage(
        self, scope: Scope, name: str, options: write.StageOptions, pieces: Sequence[write.StagePiece]
    ) -> None:
        """Store encoded and validated batches durably. Storing a batch again changes nothing.

        Partitions that were added since are no error: the decision finds out.
        """
        write.check_write_id(options.write_id)
        write.check_attempts([options.attempt])
        topic = await self._topics.find(scope, name, partition=max((piece.partition for piece in pieces), default=0))
        if topic.incarnation != options.incarnation or topic.epoch < options.epoch:
            topic = await self._topics.refresh(scope, name)
            _check_topic(topic, options.incarnation)
            if topic.epoch < options.epoch:
                raise _epoch_changed(topic)
        shares: dict[int, list[StagedBatch]] = defaultdict(list)
        for piece in pieces:
            if not 0 <= piece.partition < topic.partitions:
                raise no_partition(topic, piece.partition)
            if not 0 <= piece.number <= write.MAX_STAGED_NUMBER:
                raise InvalidBatch(
                    f"The number of a staged batch must be from 0 to {write.MAX_STAGED_NUMBER}, not {piece.number}."
                )
            shares[topic.cells[piece.partition]].append(_batch(topic, options, piece))
        if topic.settings.schema is not None:
            payloads = {place: Payload(data=piece.payload, count=piece.count) for place, piece in enumerate(pieces)}
            for refusal in (await self._validators.batch_refusals(topic, payloads)).values():
                raise refusal
        await asyncio.gather(*(self._cells[cell].staging.stage(batches) for cell, batches in shares.items()))

    async def decide(self, scope: Scope, name: str, options: write.DecideOptions) -> write.Written:
        """Decide the write, and return the decision when all its messages are in the log. An earlier decision wins."""
        write.check_write_id(options.write_id, options.kind)
        write.check_attempts(options.attempts)
        topic = await self._topics.refresh(scope, name)
        _check_topic(topic, options.incarnation)
        decision = await self._catalog.writes.find(topic.incarnation, options.write_id)
        if decision is None:
            decision = await self._decide(topic, options)
        if decision.is_abandoned:
            raise Conflict(
                f"Write '{options.write_id}' was abandoned, because it was not decided within a day; "
                "write again with another write id.",
                topic=name,
                write_id=options.write_id,
            )
        if not decision.finished:
            await self._promote(decision, sorted(set(topic.cells)), topic)
        return write.Written(count=decision.count, won=decision.attempts_hash == write.attempts_hash(options.attempts))

    async def finish(self, decision: WriteDecision) -> None:
        """Promote the rest of a decided write in all cells."""
        await self._promote(decision, sorted(self._cells))

    async def _decide(self, topic: Topic, options: write.DecideOptions) -> WriteDecision:
        attempts = options.attempts
        if topic.epoch != options.epoch:
            if options.growth is write.GrowthRule.REFUSE:
                raise _epoch_changed(topic)
            if options.growth is write.GrowthRule.MOVE:
                attempts = await self._moves.move(topic, options)
        counts = await asyncio.gather(
            *(
                self._cells[cell].staging.staged_count(pids, options.write_id, attempts)
                for cell, pids in topic.pids_by_cell().items()
            )
        )
        if sum(counts) != options.count:
            found = await self._catalog.writes.find(topic.incarnation, options.write_id)
            if found is not None:
                return found  # Another caller has decided, and its staged messages go into the log.
            raise Conflict(
                f"{sum(counts)} of {options.count} messages are staged for write '{options.write_id}' by these "
                "attempts; stage them again.",
                topic=topic.name,
                write_id=options.write_id,
            )
        if failpoints.armed:
            failpoints.hit("writes.before_decision")
        decision = WriteDecision(
            incarnation=topic.incarnation,
            write_id=options.write_id,
            attempts=tuple(attempts),
            # A repeated call names the same attempts, also if their messages were moved.
            attempts_hash=write.attempts_hash(options.attempts),
            count=options.count,
        )
        stands = await self._catalog.writes.decide(decision, topic.epoch, options.kind)
        if failpoints.armed:
            failpoints.hit("writes.after_decision")
        if stands is None:
            topic = await self._topics.refresh(topic.scope, topic.name)
            _check_topic(topic, options.incarnation)
            if topic.epoch != options.epoch and options.growth is write.GrowthRule.REFUSE:
                raise _epoch_changed(topic)
            raise Unavailable(f"Topic '{topic.name}' changed during the decision; try again.", topic=topic.name)
        return stands

    async def _promote(self, decision: WriteDecision, cells: Sequence[int], topic: Topic | None = None) -> None:
        for number, cell in enumerate(cells):
            if number and failpoints.armed:
                failpoints.hit("writes.between_cells")
            pids = await self._cells[cell].staging.staged_pids(decision.incarnation, decision.write_id)
            free = asyncio.Semaphore(_PROMOTIONS_AT_ONCE)
            results = await asyncio.gather(
                *(self._promote_one(decision, cell, pid, free, topic) for pid in pids), return_exceptions=True
            )
            # Wait for all of them: none may continue after the caller was informed of a failure.
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        await self._catalog.writes.finish(decision.incarnation, decision.write_id)

    async def _promote_one(
        self, decision: WriteDecision, cell: int, pid: int, free: asyncio.Semaphore, topic: Topic | None
    ) -> None:
        staging = self._cells[cell].staging
        async with free:
            promoted = await staging.promote(pid, decision.write_id, decision.attempts)
            if promoted.status is PromoteStatus.MISSING and topic is not None:
                await self._topics.ensure_heads(topic)
                promoted = await staging.promote(pid, decision.write_id, decision.attempts)
        if promoted.status in (PromoteStatus.MISSING, PromoteStatus.SEALED):
            raise _closed(decision, pid)
        if promoted.base is not None:
            self._grew(cell, pid, promoted.base, promoted.count)


def _batch(topic: Topic, options: write.StageOptions, piece: write.StagePiece) -> StagedBatch:
    return StagedBatch(
        pid=topic.pid(piece.partition),
        write_id=options.write_id,
        attempt=options.attempt,
        number=piece.number,
        epoch=options.epoch,
        payload=Payload(data=piece.payload, count=piece.count),
    )


def _check_topic(topic: Topic, incarnation: int) -> None:
    """Raise an error if the write is for another topic of this name."""
    if topic.incarnation != incarnation:
        raise Conflict(
            f"Topic '{topic.name}' was deleted and created again during this write; write it again.", topic=topic.name
        )


def _epoch_changed(topic: Topic) -> EpochChanged:
    return EpochChanged(topic=topic.name, epoch=topic.epoch, partitions=topic.partitions)


def _closed(decision: WriteDecision, pid: int) -> LakelogError:
    return Unavailable(
        f"Partition {partition_of_id(pid)} accepts no messages now. Write '{decision.write_id}' is decided, "
        "and finishes when the partition accepts messages again.",
        partition=partition_of_id(pid),
        write_id=decision.write_id,
    )
