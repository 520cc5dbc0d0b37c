"""Records of the messages of outboxes, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from lakelog.model.topic import Scope
from lakelog.storage.memory.clock import Clock
from lakelog.storage.outbox import REJECTED_PID, RELAYED_MEMORY, TRIM_RECORDS, RelayedAppend, StoredRejection
from lakelog.storage.store import Append, Appended, Refused


class MemoryRelays:
    """A `RelayStore` in memory. It stores no rejected messages, because a catalog in memory has no default cell."""

    def __init__(self, clock: Clock, append: Callable[[Append], Appended | Refused]) -> None:
        self._clock = clock
        self._append = append
        self._epochs: dict[int, tuple[int, int]] = {}
        """The environment and the epoch of each outbox."""
        self._relayed: dict[int, dict[tuple[int, int], tuple[int, int, datetime]]] = {}

    async def epoch_raise(self, outbox_id: int, scope: Scope) -> int:
        await asyncio.sleep(0)
        _, before = self._epochs.get(outbox_id, (0, 0))
        self._epochs[outbox_id] = (scope.environment_id, before + 1)
        return before + 1

    async def relay(
        self, outbox_id: int, epoch: int, appends: Sequence[RelayedAppend]
    ) -> list[Appended | Refused] | None:
        await asyncio.sleep(0)
        if not self._is_current(outbox_id, epoch):
            return None
        answers = [self._append(each.append) for each in appends]
        for each, answer in zip(appends, answers, strict=True):
            if isinstance(answer, Appended):
                for place, mark in enumerate(each.marks):
                    self._record(outbox_id, mark, answer.pid, answer.base + place)
        return answers

    async def reject(
        self, outbox_id: int, epoch: int, scope: Scope, rejections: Mapping[tuple[int, int], StoredRejection]
    ) -> bool:
        await asyncio.sleep(0)
        if not self._is_current(outbox_id, epoch):
            return False
        for mark in rejections:
            self._record(outbox_id, mark, REJECTED_PID, 0)
        return True

    async def record(self, outbox_id: int, epoch: int, positions: Mapping[tuple[int, int], tuple[int, int]]) -> bool:
        await asyncio.sleep(0)
        if not self._is_current(outbox_id, epoch):
            return False
        for mark, (pid, offset) in positions.items():
            self._record(outbox_id, mark, pid, offset)
        return True

    async def relayed(self, outbox_id: int, marks: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        await asyncio.sleep(0)
        known = self._relayed.get(outbox_id, {})
        return {mark: known[mark][:2] for mark in marks if mark in known}

    async def environment(self, outbox_id: int) -> int | None:
        await asyncio.sleep(0)
        return self._epochs[outbox_id][0] if outbox_id in self._epochs else None

    async def relayed_trim(self, outbox_id: int, before: datetime) -> int:
        await asyncio.sleep(0)
        known = self._relayed.get(outbox_id, {})
        limit = min(before, self._clock() - RELAYED_MEMORY)
        old = [mark for mark, (_, _, at) in known.items() if at < limit][:TRIM_RECORDS]
        for mark in old:
            del known[mark]
        return len(old)

    def _is_current(self, outbox_id: int, epoch: int) -> bool:
        return self._epochs.get(outbox_id, (0, 0))[1] == epoch

    def _record(self, outbox_id: int, mark: tuple[int, int], pid: int, offset: int) -> None:
        self._relayed.setdefault(outbox_id, {})[mark] = (pid, offset, self._clock())
