"""Group commit: appends that arrive during the running commits form the next one.

A partition is in at most one commit at a time, so its messages keep their order of arrival. A slow partition delays
only the partitions in the same commit, and only once. An idle committer commits immediately.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

from lakelog import failpoints
from lakelog.batches import encode_messages
from lakelog.engine.clock import Clock
from lakelog.engine.coalescing import CoalescingPump
from lakelog.engine.fairness import FairQueue
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.meters import APPENDS
from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.model.message import Message
from lakelog.model.times import EPOCH
from lakelog.model.topic import IDEMPOTENCY_MEMORY
from lakelog.storage.store import (
    Append,
    Appended,
    KeyedMessage,
    PartitionStore,
    PartVerdict,
    Payload,
    Refusal,
    Refused,
    SequencedRun,
    Verdict,
)

COMMITS_IN_FLIGHT = 2
"""The largest number of concurrent commits per cell. More would add work for PostgreSQL; waiting appends join a
larger commit.
"""
MAX_PARTITIONS_PER_COMMIT = 32
MAX_MESSAGES_PER_APPEND = 20_000

_MILLISECOND = timedelta(milliseconds=1)
_LAST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // _MILLISECOND
_NONE: Mapping[int, Any] = MappingProxyType({})


class PendingAppend:
    """One caller's share of a commit for one partition: messages to encode, or a payload."""

    __slots__ = (
        "count",
        "done",
        "duplicates",
        "environment",
        "epoch",
        "key_hashes",
        "key_memory",
        "messages",
        "payload",
        "pid",
        "producer",
        "size",
    )

    def __init__(
        self,
        *,
        pid: int,
        epoch: int,
        size: int,
        messages: Sequence[Message] = (),
        payload: Payload | None = None,
        producer: tuple[bytes, int] | None = None,
        key_hashes: Mapping[int, bytes] = _NONE,
        key_memory: timedelta = IDEMPOTENCY_MEMORY,
        environment: int = 0,
    ) -> None:
        """Create a part of a commit.

        `key_hashes` are by index into `messages`, and are remembered for `key_memory`. `environment` is the id of the
        caller's environment.
        """
        self.environment = environment
        self.pid = pid
        self.epoch = epoch
        self.size = size
        self.messages = messages
        self.payload = payload
        self.producer = producer
        self.key_hashes = key_hashes
        self.key_memory = key_memory
        self.duplicates: Mapping[int, int] = _NONE
        """Messages that are already in the log, by index, with their offsets."""
        self.done: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.count = payload.count if payload else len(messages)
        """The number of messages that are still to be written."""

    @property
    def fresh(self) -> list[tuple[int, Message]]:
        """Messages that are still to be written, with their indexes."""
        return [(index, message) for index, message in enumerate(self.messages) if index not in self.duplicates]

    def found(self, index: int, offset: int) -> None:
        """Record that a message of this part is already in the log."""
        self.duplicates = {**self.duplicates, index: offset}
        self.count = len(self.messages) - len(self.duplicates)

    @property
    def marks(self) -> Iterable[object]:
        """Return the keys that must be unique in a commit: the store recognises repeats only in later commits."""
        return (self.producer,) if self.producer else self.key_hashes.values()


class AppendResult(NamedTuple):
    """The result of a part. `base` is the offset of its first new message; `refusal` means that nothing was written."""

    base: int = 0
    duplicate: bool = False
    refusal: Refusal | Verdict | None = None


class Committer:
    """Appends to the log of a cell, for all publishers of this process."""

    def __init__(
        self,
        store: PartitionStore,
        grew: Callable[[int], None],
        appended: Callable[[Append, Appended], None] | None = None,
        acked: Callable[[int, int, int], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create a committer.

        It calls `acked` with the partition, the first offset and the number of messages that were written, `appended`
        with the batches, and `grew` with the partition. `clock` is the clock of the cell; by default an estimate.
        """
        self._acked = acked
        self._store = store
        self._grew = grew
        self._appended = appended
        self._waiting: dict[int, deque[PendingAppend]] = {}
        self._ready: FairQueue[int] = FairQueue()
        self._busy: set[int] = set()
        self._pump = CoalescingPump(self._next_commit, COMMITS_IN_FLIGHT)
        self._clock = clock or Clock()
        self._drops = 0

    def drop(self) -> None:
        """Let running appends finish without reporting them to `appended`."""
        self._drops += 1

    def submit(self, part: PendingAppend) -> asyncio.Future[AppendResult]:
        self._waiting.setdefault(part.pid, deque()).append(part)
        if part.pid not in self._busy:
            self._ready.add(part.environment, part.pid)
        self._pump.wake()
        return part.done

    async def drain(self) -> None:
        """Wait until every submitted append has its outcome."""
        await self._pump.drain()

    def _next_commit(self) -> Coroutine[object, object, None] | None:
        taken: list[list[PendingAppend]] = []
        while self._ready and len(taken) < MAX_PARTITIONS_PER_COMMIT:
            pid = self._ready.pop()
            if parts := self._take(pid):
                self._busy.add(pid)
                taken.append(parts)
        return self._commit(taken) if taken else None

    def _take(self, pid: int) -> list[PendingAppend]:
        waiting = self._waiting[pid]
        parts: list[PendingAppend] = []
        marks: set[object] = set()
        count = size = 0
        while waiting:
            part = waiting[0]
            if part.done.cancelled():
                # The caller gave up before anything was sent, so it must not be written.
                waiting.popleft()
                continue
            if parts and (count + part.count > MAX_MESSAGES_PER_APPEND or size + part.size > MAX_BODY_BYTES):
                break
            if parts and part.epoch != parts[0].epoch:
                break
            if part.producer or part.key_hashes:
                if parts and not marks.isdisjoint(part.marks):
                    break
                marks.update(part.marks)
            count += part.count
            size += part.size
            parts.append(waiting.popleft())
        if not waiting:
            del self._waiting[pid]
        return parts

    async def _commit(self, taken: list[list[PendingAppend]]) -> None:
        drops = self._drops
        try:
            try:
                if not self._clock.known and _has_relative_expiry(taken):
                    self._clock.heard(_ms(await self._store.clock()))
                appends = [_append_of(parts, self._clock) for parts in taken]
                began = perf_counter()
                answers = await self._store.append(appends)
                APPENDS.add(perf_counter() - began, sum(part.count for parts in taken for part in parts))
                if failpoints.armed:
                    _hit_after_commit()
            except LakelogError as error:
                _fail(taken, error)
                return
            except Exception as error:
                _fail(taken, OutcomeUnknown(f"The commit failed in an unexpected way: {error!r}."))
                raise
            for parts, append, answer in zip(taken, appends, answers, strict=True):
                self._settle(parts, append, answer, is_current=drops == self._drops)
        finally:
            for parts in taken:
                pid = parts[0].pid
                self._busy.discard(pid)
                if pid in self._waiting:
                    self._ready.add(parts[0].environment, pid)

    def _settle(
        self, parts: list[PendingAppend], append: Append, answer: Appended | Refused, *, is_current: bool
    ) -> None:
        if isinstance(answer, Appended):
            self._clock.corrected(_ms(answer.appended_at))
            base = answer.base
            for part in parts:
                _resolve(part, AppendResult(base=base))
                base += part.count
            if self._acked is not None:
                self._acked(answer.pid, answer.base, base - answer.base)
            if self._appended is not None and is_current:
                self._appended(append, answer)
            self._grew(answer.pid)
        elif answer.refusal is Refusal.PARTS:
            self._settle_parts(parts, append, answer.verdicts)
        else:
            for part in parts:
                _resolve(part, AppendResult(refusal=answer.refusal))

    def _settle_parts(self, parts: list[PendingAppend], append: Append, verdicts: Sequence[PartVerdict]) -> None:
        """Handle a commit that wrote nothing: resolve parts with a verdict, and queue the other parts again."""
        owners = _owners(parts)
        for verdict in verdicts:
            start = (append.keyed if verdict.keyed else append.sequenced)[verdict.index].start
            part, index = owners[start]
            if verdict.verdict is not Verdict.DUPLICATE:
                _resolve(part, AppendResult(refusal=verdict.verdict))
            elif verdict.offset is None:
                continue  # A repeat within this append: from the next append on, the store knows the first one.
            elif verdict.keyed:
                part.found(index, verdict.offset)
                if part.count == 0:
                    _resolve(part, AppendResult(duplicate=True))
            else:
                _resolve(part, AppendResult(base=verdict.offset, duplicate=True))
        again = [part for part in parts if not part.done.done()]
        if again:
            self._waiting.setdefault(again[0].pid, deque()).extendleft(reversed(again))


def _append_of(parts: Sequence[PendingAppend], clock: Clock) -> Append:
    sequenced: list[SequencedRun] = []
    keyed: list[KeyedMessage] = []
    start = 0
    for part in parts:
        if part.producer:
            producer, sequence = part.producer
            sequenced.append(SequencedRun(producer=producer, sequence=sequence, start=start, count=part.count))
        for position, (index, _) in enumerate(part.fresh if part.key_hashes else ()):
            if index in part.key_hashes:
                key_hash = part.key_hashes[index]
                keyed.append(KeyedMessage(key_hash=key_hash, start=start + position, memory=part.key_memory))
        start += part.count
    payloads = _payloads(parts, clock)
    return Append(pid=parts[0].pid, epoch=parts[0].epoch, payloads=payloads, sequenced=sequenced, keyed=keyed)


def _payloads(parts: Sequence[PendingAppend], clock: Clock) -> list[Payload]:
    """Return the batches in order of arrival; messages without a payload between them share one batch."""
    payloads: list[Payload] = []
    for is_loose, run in groupby(parts, key=lambda part: part.payload is None):
        if is_loose:
            messages: list[Message] = []
            for part in run:
                messages.extend([message for _, message in part.fresh] if part.duplicates else part.messages)
            messages = [each if each.expires_ms is None else _dated(each, each.expires_ms, clock) for each in messages]
            payloads.append(Payload(data=encode_messages(messages), count=len(messages)))
        else:
            payloads.extend(part.payload for part in run if part.payload)
    return payloads


def _has_relative_expiry(taken: Sequence[Sequence[PendingAppend]]) -> bool:
    return any(message.expires_ms is not None for parts in taken for part in parts for message in part.messages)


def _dated(message: Message, expires_ms: int, clock: Clock) -> Message:
    """Return the message with its expiry in the database's time, which differs from the clock of this process."""
    expires_at = EPOCH + timedelta(milliseconds=min(clock.now_ms() + expires_ms, _LAST_MS))
    return replace(message, expires_at=expires_at, expires_ms=None)


def _ms(time: datetime) -> int:
    return (time - EPOCH) // _MILLISECOND


def _owners(parts: Sequence[PendingAppend]) -> dict[int, tuple[PendingAppend, int]]:
    """Return the part and the message index for each position in the append."""
    owners: dict[int, tuple[PendingAppend, int]] = {}
    start = 0
    for part in parts:
        owners[start] = (part, 0)
        for position, (index, _) in enumerate(part.fresh):
            owners[start + position] = (part, index)
        start += part.count
    return owners


def _resolve(part: PendingAppend, outcome: AppendResult) -> None:
    if not part.done.done():
        part.done.set_result(outcome)


def _fail(taken: Sequence[Sequence[PendingAppend]], error: LakelogError) -> None:
    for parts in taken:
        for part in parts:
            if not part.done.done():
                part.done.set_exception(type(error)(error.detail, **error.subject))


def _hit_after_commit() -> None:
    try:
        failpoints.hit("publish.after_commit")
    except Unavailable as error:
        # A response lost here is lost after the commit; `Unavailable` would claim that nothing was written.
        raise OutcomeUnknown(error.detail) from error
