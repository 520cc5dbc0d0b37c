"""The messages of a cached batch that a group does not get. Expensive filters are evaluated in slices.

A filter of some thousand characters can take seconds for one large message. Only cheap filters are evaluated while a
decision is made. Expensive filters are evaluated before it, in slices between which the event loop handles other calls.
A decision gets the messages that are evaluated by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from lakelog.batches import rows
from lakelog.coordinator.leasing.operations import ExclusionReason
from lakelog.model.filter import Filter, FilterInput
from lakelog.model.like import OutOfSteps, StepBudget
from lakelog.storage.store import HotBatch

INLINE_STEPS = 1 << 18
"""The number of steps up to which a filter is evaluated during the decision."""
SLICE_STEPS = 1 << 20
"""The number of steps after which other calls are handled: about a millisecond."""
EVALUATION_STEPS = 1 << 24
"""The number of steps after which a decision is made about the messages that are evaluated so far."""
BURST_SLICES = 64
SLICE_SECONDS = 0.002
"""The mean time from one slice to the next, after the burst: filters take at most half of a process."""

_DECODE_BYTES = 1 << 20
_ROWS = 64
_ROW_STEPS = 1000
_NAMES = ("key", "headers", "value", "content_type", "correlation_id")


class Batch(Protocol):
    """The part of a cached batch that a filter needs."""

    partition: int
    hot: HotBatch
    size: int

    @property
    def batch(self) -> pa.RecordBatch: ...


class Exclusions:
    """The messages of one batch that one group does not get, among those for which its filter is evaluated."""

    def __init__(self, cached: Batch, wanted: Filter | None, excluded: dict[int, ExclusionReason]) -> None:
        self._cached = cached
        self._wanted = wanted
        self.excluded = excluded
        hot = cached.hot
        self.until = hot.end if wanted is None else hot.base
        """The offset up to which the messages are evaluated."""
        self._inputs: Iterator[FilterInput] | None = None
        self._current: FilterInput | None = None

    @property
    def is_complete(self) -> bool:
        return self.until == self._cached.hot.end

    @property
    def steps(self) -> int:
        """Return the largest number of steps that the evaluation may still take."""
        if self._wanted is None or self.is_complete:
            return 0
        return self._wanted.weight * self._cached.size

    def complete(self) -> None:
        """Evaluate the filter for all messages now."""
        while self._current is not None:
            self.advance(SLICE_STEPS)
        if self._wanted is not None and not self.is_complete:
            matches, excluded = self._wanted.matches, self.excluded
            for subject in _inputs(self._cached, self.until, self._cached.hot.count):
                if not matches(subject):
                    excluded[self.until] = ExclusionReason.FILTERED
                self.until += 1
            self._inputs = None

    async def decode(self) -> None:
        """Decode a large batch outside of the event loop."""
        if not self.is_complete and self._cached.size > _DECODE_BYTES:
            await asyncio.to_thread(lambda: self._cached.batch)

    def advance(self, steps: int) -> int:
        """Evaluate the filter until the steps are used up. Return the number of steps that were used."""
        assert self._wanted is not None
        left = steps
        while left > 0 and not self.is_complete:
            subject = self._current = self._current or self._next()
            assert subject.steps is not None
            subject.steps.left = left
            try:
                is_wanted = self._wanted.matches(subject)
            except OutOfSteps:
                return steps - subject.steps.left
            left = subject.steps.left - _ROW_STEPS
            if not is_wanted:
                self.excluded[self.until] = ExclusionReason.FILTERED
            self.until += 1
            self._current = None
        if self.is_complete:
            self._inputs = None
        return steps - left

    def _next(self) -> FilterInput:
        if self._inputs is None:
            self._inputs = _inputs(self._cached, self.until, _ROWS)
        subject = next(self._inputs)
        subject.steps = StepBudget(0)
        return subject


class FilterEvaluator:
    """Evaluates expensive filters; one per engine, so that all of them together leave time for other calls."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._next_at = 0.0
        """The time at which the next slice may begin."""

    async def evaluate(self, batches: Iterable[Exclusions]) -> None:
        """Evaluate the filter in these batches, at least for one message, until a decision can be made."""
        spent, is_done = 0, False
        for exclusions in batches:
            await exclusions.decode()
            while not exclusions.is_complete:
                if is_done and spent >= EVALUATION_STEPS:
                    return
                before = exclusions.until
                async with self._turn:
                    await self._pause()
                    used = exclusions.advance(SLICE_STEPS)
                    self._charge(used)
                    spent += used
                is_done = is_done or exclusions.until > before

    async def matches(self, wanted: Filter, subject: FilterInput, size: int) -> bool:
        """Return whether the filter selects one message of this size in bytes."""
        if wanted.weight * size <= INLINE_STEPS // 16:
            return wanted.matches(subject)
        subject.steps = StepBudget(0)
        while True:
            async with self._turn:
                await self._pause()
                subject.steps.left = SLICE_STEPS
                try:
                    return wanted.matches(subject)
                except OutOfSteps:
                    pass
                finally:
                    self._charge(SLICE_STEPS - subject.steps.left)

    async def _pause(self) -> None:
        """Let other calls run. After a burst, wait until the next slice is due."""
        await asyncio.sleep(max(0.0, self._next_at - asyncio.get_running_loop().time()))

    def _charge(self, steps: int) -> None:
        """Set the time of the next slice after a slice with that number of steps."""
        earliest = asyncio.get_running_loop().time() - BURST_SLICES * SLICE_SECONDS
        self._next_at = max(self._next_at, earliest) + SLICE_SECONDS * steps / SLICE_STEPS


def _inputs(cached: Batch, offset: int, count: int) -> Iterator[FilterInput]:
    """Return the inputs of the filter from an offset on; `count` rows at a time are converted to Python values."""
    base, batch = cached.hot.base, cached.batch
    for first in range(offset - base, cached.hot.count, count):
        found: Iterator[tuple[Any, ...]] = rows(batch.slice(first, count), _NAMES)
        for number, (key, headers, value, content_type, correlation_id) in enumerate(found, base + first):
            yield FilterInput(
                key=key,
                headers=headers,
                value=value,
                content_type=content_type,
                correlation_id=correlation_id,
                offset=number,
                partition=cached.partition,
            )
