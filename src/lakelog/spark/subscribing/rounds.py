"""Conversion of leases into the slots of a round, and of the outcomes into answers.

The functions are pure: they take no leases, run no handlers and send no answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.batches import FETCH, key_hashes
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import leased_columns, messages_of
from lakelog.client.values import Consumed
from lakelog.errors import LakelogError
from lakelog.model.group import Order
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from lakelog.spark.subscribing.handling import ChildEvent, HandlerOutcome, HandlerTask

Rows = npt.NDArray[np.int64]

_EXTRA = (
    pa.field("lease", pa.int32()),
    pa.field("attempt", pa.int32()),
    pa.field("failures", pa.int32()),
    pa.field("chain", pa.int64()),
)
_SCHEMA = pa.schema([*FETCH, *_EXTRA])


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRound:
    """Leased messages by row. `leases` has the partition and token for each number in the column `lease`."""

    topic: str
    incarnation: int
    leases: Sequence[tuple[int, int]]
    batch: pa.RecordBatch

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    def chains(self) -> Rows:
        found: Rows = self.batch.column("chain").to_numpy()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAnswers:
    """The answers of a round: finished messages, then failures by chain, and the messages not run after a failure.

    A nack makes the server release the messages that follow in the chain. After a message that became a dead letter,
    they must be released explicitly.
    """

    done: Sequence[LeaseAnswer]
    failed: Mapping[int, LeaseAnswer]
    behind: Mapping[int, LeaseAnswer]

    @property
    def first(self) -> list[LeaseAnswer]:
        return [*self.done, *self.failed.values()]

    def then(self, results: Sequence[Answered | LakelogError]) -> list[LeaseAnswer]:
        """Return the releases to send, given the results of the first answers."""
        of_failed = zip(self.failed, results[len(self.done) :], strict=True)
        dead = [chain for chain, result in of_failed if isinstance(result, Answered) and result.dead]
        return [self.behind[chain] for chain in dead if chain in self.behind]


class SlotWork(msgspec.Struct, frozen=True):
    """The messages of a slot as sent to an executor, in an Arrow stream."""

    topic: str
    incarnation: int
    columns: bytes


def round_of(topic: str, taken: Sequence[Consumed], order: Order) -> SparkRound:
    """Return one round with all leases of these calls."""
    leases: list[tuple[int, int]] = []
    parts: list[pa.RecordBatch] = []
    for consumed in taken:
        payloads = iter(consumed.payloads)
        for lease in consumed.leases:
            batch = leased_columns(lease, [next(payloads) for _ in lease.pieces])
            offsets = batch.column("offset").to_pylist()
            attempts = [lease.deliveries.get(offset, 1) for offset in offsets] if lease.deliveries else 1
            failures = [lease.failures.get(offset, 0) for offset in offsets] if lease.failures else 0
            extra = (
                _numbers(len(leases), batch.num_rows, np.int32),
                _numbers(attempts, batch.num_rows, np.int32),
                _numbers(failures, batch.num_rows, np.int32),
                pa.array(_chains(batch, lease.partition, order)),
            )
            parts.append(pa.RecordBatch.from_arrays([*batch.columns, *extra], schema=_SCHEMA))
            leases.append((lease.partition, lease.token))
    whole = pa.Table.from_batches(parts, schema=_SCHEMA).combine_chunks().to_batches()[0]
    free = whole.column("chain").to_numpy() == 0
    chains = np.where(free, -1 - np.arange(whole.num_rows), whole.column("chain").to_numpy())
    batch = whole.set_column(_SCHEMA.get_field_index("chain"), "chain", pa.array(chains))
    return SparkRound(topic=topic, incarnation=taken[0].head.incarnation, leases=leases, batch=batch)


def slots_of(chains: Rows, count: int) -> list[Rows]:
    """Return the rows of at most `count` slots of similar length. All rows of a chain are in one slot, in order."""
    _, places, sizes = np.unique(chains, return_inverse=True, return_counts=True)
    loads = [0] * min(count, len(sizes))
    lane_of_chain = np.zeros(len(sizes), np.int64)
    longest_first = np.argsort(-sizes, kind="stable")
    long = [chain for chain in longest_first.tolist() if sizes[chain] > 1]
    for chain in long:
        slot = loads.index(min(loads))
        lane_of_chain[chain] = slot
        loads[slot] += int(sizes[chain])
    lane_of_chain[longest_first[len(long) :]] = _levelled(loads, len(sizes) - len(long))
    slots = lane_of_chain[places.reshape(-1)]
    return [rows for slot in range(len(loads)) if len(rows := np.flatnonzero(slots == slot))]


def work_of(found: SparkRound, rows: Rows) -> bytes:
    """Return a slot encoded for an executor."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as stream:
        stream.write_batch(found.batch.take(pa.array(rows)))
    return msgspec.msgpack.encode(SlotWork(found.topic, found.incarnation, sink.getvalue().to_pybytes()))


def tasks_of(work: bytes) -> list[HandlerTask]:
    """Return the decoded tasks of a slot, on the executor."""
    slot = msgspec.msgpack.decode(work, type=SlotWork)
    codec: Codec[Any] = Codec()
    with pa.ipc.open_stream(slot.columns) as stream:
        batch = stream.read_next_batch()
    messages = messages_of(batch, slot.topic, codec, slot.incarnation)
    numbers = [batch.column(name).to_pylist() for name in ("attempt", "failures", "chain")]
    return [HandlerTask(*each) for each in zip(messages, *numbers, strict=True)]


def answers_of(found: SparkRound, outcomes: Mapping[int, HandlerOutcome]) -> RoundAnswers:
    """Return the answers for the rows, in an order that the server accepts: messages of a key by offset."""
    leases, offsets = found.batch.column("lease").to_pylist(), found.batch.column("offset").to_pylist()
    chains = found.batch.column("chain").to_pylist()
    done: dict[int, list[tuple[HandlerOutcome, list[int]]]] = {}
    failed: dict[int, LeaseAnswer] = {}
    behind: dict[int, tuple[int, list[int]]] = {}
    for row, outcome in sorted(outcomes.items()):
        lease, offset = leases[row], offsets[row]
        if outcome.event is ChildEvent.RELEASE:
            behind.setdefault(chains[row], (lease, []))[1].append(offset)
        elif outcome.event in (ChildEvent.NACK, ChildEvent.FAIL):
            failed[chains[row]] = _answer(found, lease, outcome, [offset])
        else:
            runs = done.setdefault(lease, [])
            if not runs or runs[-1][0] != outcome:
                runs.append((outcome, []))
            runs[-1][1].append(offset)
    told = [_answer(found, lease, *run) for lease, runs in done.items() for run in runs]
    releases = {
        chain: _answer(found, lease, HandlerOutcome(ChildEvent.RELEASE), some)
        for chain, (lease, some) in behind.items()
    }
    return RoundAnswers(done=told, failed=failed, behind=releases)


def _answer(found: SparkRound, lease: int, outcome: HandlerOutcome, offsets: Sequence[int]) -> LeaseAnswer:
    partition, token = found.leases[lease]
    return LeaseAnswer(
        verb=Verb[outcome.event.name],
        partition=partition,
        token=token,
        offsets=tuple(sorted(offsets)),
        delay_ms=outcome.delay_ms,
        reason=outcome.reason,
        traceback=outcome.traceback,
    )


def _chains(batch: pa.RecordBatch, partition: int, order: Order) -> Rows:
    """Return the chain of each message, as the server defines it: messages that must run in order. 0 means no chain."""
    if order is Order.NONE:
        return np.zeros(batch.num_rows, np.int64)
    if order is Order.PARTITION:
        return np.full(batch.num_rows, (partition << 32) + 1, np.int64)
    hashes = np.array(key_hashes(batch), np.int64)
    return np.where(hashes == 0, 0, (partition << 32) + hashes)


def _levelled(loads: Sequence[int], count: int) -> Rows:
    """Return a slot for each of `count` single messages, so that all slots have a similar length."""
    level = -(-(sum(loads) + count) // len(loads))
    room = np.maximum(0, level - np.array(loads, np.int64))
    found: Rows = np.repeat(np.arange(len(loads)), room)[:count]
    return found if len(found) == count else np.arange(count) % len(loads)


def _numbers(values: Sequence[int] | int, count: int, kind: type[np.int32]) -> pa.Array:
    return pa.array(np.full(count, values, kind) if isinstance(values, int) else np.array(values, kind))
