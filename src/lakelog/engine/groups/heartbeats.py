"""Heartbeats of members: collected in this process, and written together at intervals.

A heartbeat that is not written yet is known only to this process, so the check of a session elsewhere must allow for
the delay. The module evicts no members.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Mapping

from lakelog.errors import LakelogError
from lakelog.storage.groups import GroupStore

GRACE_SECONDS = 2.0
"""How long no member is evicted after the store was unreachable: heartbeats of other servers may be missing."""
_AGAIN_SECONDS = 0.5

_log = logging.getLogger(__name__)


class Heartbeats:
    """The members that this process has seen, of all groups of one cell."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._trusted_from = -math.inf
        self._seen: dict[int, set[str]] = {}
        self._on_its_way: dict[int, set[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def note(self, group_id: int, member_id: str, within_seconds: float) -> None:
        """Record that a member was seen. The heartbeat is written within that time, together with others."""
        self._seen.setdefault(group_id, set()).add(member_id)
        self._arm(within_seconds)

    def unwritten(self, group_id: int) -> set[str]:
        """Return the members that were seen but are not written yet."""
        return self._seen.get(group_id, set()) | self._on_its_way.get(group_id, set())

    def forget(self, group_id: int, member_ids: Collection[str]) -> None:
        """Remove members that left."""
        left = self._seen.get(group_id, set()) - set(member_ids)
        self._seen.pop(group_id, None)
        if left:
            self._seen[group_id] = left

    def failed(self) -> None:
        """Record that the store was unreachable."""
        self._trusted_from = asyncio.get_running_loop().time() + GRACE_SECONDS

    @property
    def is_trusted(self) -> bool:
        """False if heartbeats may be missing because the store was unreachable."""
        return asyncio.get_running_loop().time() >= self._trusted_from

    async def flush(self) -> None:
        """Write the remaining heartbeats."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._write()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():
            self._arm(_AGAIN_SECONDS)
        else:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        if not self._seen:
            return
        sending, self._seen = self._seen, {}
        self._on_its_way = sending
        pairs = _pairs(sending)
        try:
            await self._store.heartbeats_write(pairs)
        except LakelogError as error:
            _log.debug("heartbeats not written: %s", error)
            self.failed()
            for group_id, member_id in pairs:
                self.note(group_id, member_id, _AGAIN_SECONDS)
        finally:
            self._on_its_way = {}


def _pairs(seen: Mapping[int, Collection[str]]) -> list[tuple[int, str]]:
    # In the same order everywhere, so that two servers that write the same rows cannot deadlock.
    return sorted((group_id, member_id) for group_id, member_ids in seen.items() for member_id in member_ids)
