"""Publishes columns: a caller's Arrow stream is cut by partition into encoded batches, with one result per message.

Reading, cutting and encoding a large body takes milliseconds, so a few threads do it. Their number also limits the
expanded size of compressed bodies in memory. Messages with idempotency keys are published one by one, because each key
has its own home cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.batches import concat, encode, partitions_of, read_stream, split, to_messages
from lakelog.batches.arrays import filled_numbers, from_numbers
from lakelog.engine.log.publish import Frame, FrameReceipt, Publisher
from lakelog.engine.log.threads import Threads
from lakelog.engine.log.topics import Topics
from lakelog.errors import EpochChanged, LakelogError, PartitionNotFound, SchemaViolation
from lakelog.model.message import Message, message_id
from lakelog.model.position import Receipt
from lakelog.model.topic import Scope, Topic
from lakelog.storage.store import Payload

_TRIES = 5

Rows = npt.NDArray[np.int64]
Results = list[Receipt | LakelogError]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A prepared stream: frames with the rows in each, or messages to publish one by one."""

    count: int
    frames: Sequence[Frame] = ()
    rows: Sequence[Rows] = ()
    refused: Rows | None = None
    """The rows whose partition does not exist."""
    messages: Sequence[Message] | None = None


class ColumnPublisher:
    """Publishes Arrow streams into any topic; one per engine."""

    def __init__(self, publisher: Publisher, topics: Topics, threads: Threads) -> None:
        self._publisher = publisher
        self._topics = topics
        self._threads = threads

    async def stream(self, scope: Scope, name: str, body: bytes) -> Results:
        """Publish a stream, and return a receipt or refusal for each message in order; all or nothing per partition."""
        results: dict[int, Receipt | LakelogError] = {}
        wanted: Rows | None = None
        for _ in range(_TRIES):
            topic = await self._topics.find(scope, name)
            turn = self._publisher.take_turns(topic, 0)
            cut = await self._threads.run(len(body), _cut, body, topic, turn, wanted)
            self._publisher.take_turns(topic, cut.count)
            if cut.messages is not None:
                return await self._publisher.messages(scope, name, cut.messages)
            answers = await self._publisher.frames(scope, name, cut.frames)
            results.update(_results(topic, cut, answers))
            moved = [n for n, answer in enumerate(answers) if isinstance(answer, EpochChanged)]
            if not moved:
                break
            # Partitions were added: the keys of these rows may belong to other partitions now, and none of them is
            # written.
            wanted = np.sort(np.concatenate([cut.rows[n] for n in moved]))
        return [results[row] for row in range(len(results))]


def _cut(body: bytes, topic: Topic, turn: int, wanted: Rows | None) -> _Cut:
    batch, given = _read(body)
    rows = np.arange(batch.num_rows, dtype=np.int64) if wanted is None else wanted
    if wanted is not None:
        batch, given = batch.take(from_numbers(wanted, pa.int64())), given[wanted]
    if "idempotency_key" in batch.schema.names:
        return _Cut(count=len(rows), messages=_messages(batch, given))
    chosen = _choose(batch, given, topic.partitions, turn)
    beyond = chosen >= topic.partitions
    refused = rows[beyond] if beyond.any() else None
    if refused is not None:
        kept = np.flatnonzero(~beyond)
        batch, chosen, rows = batch.take(from_numbers(kept, pa.int64())), chosen[kept], rows[kept]
    parts = split(batch, chosen, topic.partitions)
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum([part.num_rows for _, part in parts])[:-1]
    frames = [
        Frame(partition=partition, payload=Payload(data=encode(part), count=part.num_rows), epoch=topic.epoch)
        for partition, part in parts
    ]
    return _Cut(count=len(rows), frames=frames, rows=np.split(rows[order], ends) if parts else [], refused=refused)


def _read(body: bytes) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
    """Return all messages of the stream in one batch, and the partition that each names; -1 if it names none."""
    batches, given = [], []
    for batch in read_stream(body):
        number = batch.schema.get_field_index("partition")
        if number < 0:
            given.append(np.full(batch.num_rows, -1, np.int32))
        else:
            given.append(filled_numbers(batch.column(number), -1))
            batch = batch.drop_columns(["partition"])
        batches.append(batch)
    return concat(batches), np.concatenate(given)


def _choose(batch: pa.RecordBatch, given: npt.NDArray[np.int32], partitions: int, turn: int) -> npt.NDArray[np.int32]:
    chosen = given.copy()
    free = chosen < 0
    if free.any() and "key" in batch.schema.names:
        chosen[free] = partitions_of(batch.column("key"), partitions)[free]
        free = chosen < 0
    keyless = int(np.count_nonzero(free))
    if keyless:
        chosen[free] = (turn + np.arange(keyless)) % partitions
    return chosen


def _messages(batch: pa.RecordBatch, given: npt.NDArray[np.int32]) -> list[Message]:
    return [
        replace(message, partition=partition) if partition >= 0 else message
        for message, partition in zip(to_messages(batch), given.tolist(), strict=True)
    ]


def _results(
    topic: Topic, cut: _Cut, answers: Sequence[FrameReceipt | LakelogError]
) -> dict[int, Receipt | LakelogError]:
    results: dict[int, Receipt | LakelogError] = {}
    if cut.refused is not None:
        error = PartitionNotFound(f"Topic '{topic.name}' has partitions 0 to {topic.partitions - 1}.", topic=topic.name)
        results.update(dict.fromkeys(cut.refused.tolist(), error))
    for rows, answer in zip(cut.rows, answers, strict=True):
        if isinstance(answer, LakelogError):
            if isinstance(answer, SchemaViolation):
                answer = answer.moved(rows.tolist())
            results.update(dict.fromkeys(rows.tolist(), answer))
            continue
        partition = answer.partition
        for offset, row in enumerate(rows.tolist(), start=answer.offset):
            results[row] = Receipt(
                id=message_id(answer.incarnation, partition, offset),
                partition=partition,
                offset=offset,
                duplicate=answer.duplicate,
            )
    return results
