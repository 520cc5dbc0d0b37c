"""Rejected messages in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from lakelog.model.topic import Scope
from lakelog.storage.memory.audit import MemoryAudit
from lakelog.storage.memory.clock import Clock
from lakelog.storage.outbox import StoredRejection


class MemoryRejected:
    """A `RejectedCatalog` in memory."""

    def __init__(self, clock: Clock, audit: MemoryAudit) -> None:
        self._clock = clock
        self._audit = audit
        self._numbers = count(1)
        self._stored: dict[tuple[int, str], StoredRejection] = {}

    async def rejected_add(self, scope: Scope, rejections: Sequence[StoredRejection]) -> None:
        await asyncio.sleep(0)
        for each in rejections:
            place = (scope.environment_id, each.message_id)
            known = self._stored.get(place) or replace(each, number=next(self._numbers), at=self._clock())
            self._stored[place] = replace(known, code=each.code, reason=each.reason)

    async def rejected_list(
        self, scope: Scope, *, topic: str | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredRejection]:
        await asyncio.sleep(0)
        found = [each for each in self._of(scope) if each.number > after and topic in (None, each.topic)]
        return found[:limit]

    async def rejected_find(self, scope: Scope, message_ids: Sequence[str]) -> list[StoredRejection]:
        await asyncio.sleep(0)
        return [each for each in self._of(scope) if each.message_id in set(message_ids)]

    async def rejected_remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        await asyncio.sleep(0)
        removed = sum(self._stored.pop((scope.environment_id, each), None) is not None for each in set(message_ids))
        if removed:
            self._audit.changed()
        return removed

    def _of(self, scope: Scope) -> list[StoredRejection]:
        """Return the rejected messages of a scope, by number."""
        found = [each for (environment, _), each in self._stored.items() if environment == scope.environment_id]
        return sorted(found, key=lambda each: each.number)
