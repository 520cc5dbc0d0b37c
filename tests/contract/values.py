"""Values for contract tests: new ids, batches whose bytes identify them, short forms."""

from __future__ import annotations

import os
import secrets
from datetime import timedelta

from lakelog.model.message import partition_id
from lakelog.model.topic import IDEMPOTENCY_MEMORY
from lakelog.storage.store import (
    Append,
    Appended,
    Head,
    HotBatch,
    KeyedMessage,
    PartitionStore,
    Payload,
    Refused,
    SequencedRun,
)

EVERYTHING = 1 << 30


def new_incarnation() -> int:
    return secrets.randbelow(1 << 40) + 1


def new_pids(count: int) -> list[int]:
    incarnation = new_incarnation()
    return [partition_id(incarnation, partition) for partition in range(count)]


def new_producer() -> bytes:
    return os.urandom(16)


def new_hash() -> bytes:
    return os.urandom(32)


async def create(store: PartitionStore, count: int = 1) -> list[int]:
    """Return new partitions with heads."""
    pids = new_pids(count)
    await store.heads_create(pids, 0)
    return pids


async def create_one(store: PartitionStore) -> int:
    (pid,) = await create(store)
    return pid


def batch(count: int, size: int = 0) -> Payload:
    """Return a unique payload of 16 bytes or `size`."""
    return Payload(data=os.urandom(size or 16), count=count)


def plain(pid: int, *counts: int, epoch: int = 0) -> Append:
    return Append(pid=pid, epoch=epoch, payloads=[batch(count) for count in counts])


def run(producer: bytes, sequence: int, start: int = 0, count: int = 1) -> SequencedRun:
    return SequencedRun(producer=producer, sequence=sequence, start=start, count=count)


def numbered(pid: int, *runs: SequencedRun, epoch: int = 0) -> Append:
    return Append(pid=pid, epoch=epoch, payloads=[batch(sum(each.count for each in runs))], sequenced=runs)


def with_keys(pid: int, *key_hashes: bytes, memory: timedelta = IDEMPOTENCY_MEMORY) -> Append:
    keyed = [KeyedMessage(key_hash=key_hash, start=start, memory=memory) for start, key_hash in enumerate(key_hashes)]
    return Append(pid=pid, epoch=0, payloads=[batch(len(key_hashes))], keyed=keyed)


async def append_one(store: PartitionStore, append: Append) -> Appended | Refused:
    (answer,) = await store.append([append])
    assert answer.pid == append.pid
    return answer


async def appended(store: PartitionStore, append: Append) -> Appended:
    answer = await append_one(store, append)
    assert isinstance(answer, Appended), answer
    return answer


async def refused(store: PartitionStore, append: Append) -> Refused:
    answer = await append_one(store, append)
    assert isinstance(answer, Refused), answer
    return answer


async def head_of(store: PartitionStore, pid: int) -> Head:
    (head,) = await store.heads_read([pid])
    return head


async def read_batches(
    store: PartitionStore, pid: int, offset: int, *, max_messages: int = EVERYTHING, max_bytes: int = EVERYTHING
) -> list[HotBatch]:
    read = await store.read(pid, offset, max_messages=max_messages, max_bytes=max_bytes)
    assert read is not None
    return list(read.batches)


async def read_all(store: PartitionStore, pid: int) -> list[HotBatch]:
    """Read everything from the log start, in as many reads as needed; assert that there is no gap."""
    head = await head_of(store, pid)
    found: list[HotBatch] = []
    offset = head.log_start
    while offset < head.next_offset:
        batches = await read_batches(store, pid, offset, max_messages=50)
        assert batches, f"nothing at {offset} below {head.next_offset}"
        assert batches[0].base <= offset < batches[0].end
        for each in batches:
            assert each.base == offset or each is batches[0]
            offset = each.end
        found += batches
    return found
