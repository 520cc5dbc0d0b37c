"""Dead letters of a group in the caller's hands: looked at, published again for their group, or discarded."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._runtime import async_sleep
from lakelog.client.dead_letter_filter import where_of
from lakelog.client.group_values import DeadLetter, DeadPage, DeadWish, Redriven, RedriveWish
from lakelog.errors import InvalidRequest
from lakelog.model.repair import Repair

Progress = Callable[[Redriven], None]
"""Told how many there are so far."""

_PER_CALL = 1000
_LOOKED_AT = 10_000
"""By a dry run, which is one call."""


class AsyncDeadLetters:
    """Made by `topic.dead_letters(group)`. `where` narrows it; the verbs act on what is left."""

    def __init__(self, calls: AsyncCalls, group: str, topic: str | None = None, where: str | None = None) -> None:
        self._calls = calls
        self._group = group
        self._topic = topic
        self._where = where

    def where(self, text: str | None = None, *, error: str | None = None, key: str | None = None) -> AsyncDeadLetters:
        """Those that the filter lets through; `error="timeout"` stands for `error like '%timeout%'`."""
        narrowed = where_of(self._where, text, error, key)
        return AsyncDeadLetters(self._calls, self._group, self._topic, narrowed)

    async def list(self, limit: int = 100, *, state: str = "dead") -> list[DeadLetter]:
        """The first so many: those that are dead, or were `redriven` or `discarded`."""
        found: list[DeadLetter] = []
        after: str | None = None
        while len(found) < limit:
            page = await self._page(after, state, min(_PER_CALL, limit - len(found)))
            found += page.letters
            if page.next is None:
                break
            after = page.next
        return found

    async def find(self, message_id: str) -> DeadLetter:
        groups = self._calls.transport.groups
        return await self._calls.run(lambda left: groups.find_dead(self._group, message_id, left), safe=True)

    async def __aiter__(self) -> AsyncIterator[DeadLetter]:
        after: str | None = None
        while True:
            page = await self._page(after)
            for letter in page.letters:
                yield letter
            if page.next is None:
                return
            after = page.next

    async def redrive(
        self,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        limit: int | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Redriven:
        """Publishes them again, for their group alone: all, or at most `limit`. `rate` is how many a second; `force`
        also takes those that were redriven too often. `progress` is called as it goes on.
        """
        if rate is not None and rate <= 0:
            raise InvalidRequest("A rate is how many a second, above zero.")
        wish = RedriveWish(topic=self._topic, where=self._where, dry_run=dry_run, force=force)
        if dry_run:
            return await self._redrive(replace(wish, limit=min(limit or _LOOKED_AT, _LOOKED_AT)))
        total = Redriven()
        begun = time.monotonic()
        while True:
            share = _share(rate) if limit is None else min(_share(rate), limit - total.redriven)
            done = await self._redrive(replace(wish, limit=share))
            total = replace(
                total,
                redriven=total.redriven + done.redriven,
                refused=done.refused,
                ids=total.ids or done.ids,
                refusals=done.refusals,
                has_more=done.has_more,
            )
            if progress is not None:
                progress(total)
            if not done.has_more or not done.redriven or total.redriven == limit:
                return total
            if rate is not None:
                await async_sleep(max(0.0, begun + total.redriven / rate - time.monotonic()))

    async def retry(
        self,
        message_id: str,
        *,
        value: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> Redriven:
        """Publishes one again, as it is or with another value or other headers."""
        repaired = None if value is None and headers is None else {message_id: Repair(value=value, headers=headers)}
        return await self._redrive(RedriveWish(message_ids=(message_id,), force=force, repaired=repaired))

    async def redrive_these(
        self,
        message_ids: Sequence[str],
        *,
        repaired: Mapping[str, Repair] | None = None,
        max_redrives: int = 3,
        force: bool = False,
        dry_run: bool = False,
    ) -> Redriven:
        """Publishes those named again, at most 10,000, some of them repaired. If none of them can be, it raises why."""
        wish = RedriveWish(
            message_ids=tuple(message_ids),
            repaired=repaired or None,
            max_redrives=max_redrives,
            force=force,
            dry_run=dry_run,
        )
        return await self._redrive(wish)

    async def page(self, partition: int, after: str | None, limit: int = _PER_CALL) -> DeadPage:
        """Some of one partition of the topic: for those who read partitions beside one another."""
        return await self._page(after, limit=limit, partition=partition)

    async def retry_all(self) -> Redriven:
        return await self.redrive()

    async def discard(self, *message_ids: str) -> int:
        """Those named, or all that `where` leaves; how many. They are not wanted any more."""
        wish = DeadWish(topic=self._topic, where=self._where, limit=_PER_CALL)
        if message_ids:
            wish = DeadWish(message_ids=message_ids, limit=len(message_ids))
        groups = self._calls.transport.groups
        total = 0
        while True:
            done = await self._calls.run(lambda left: groups.discard(self._group, wish, left), safe=True)
            total += done
            if message_ids or done < _PER_CALL:
                return total

    async def _page(
        self, after: str | None, state: str = "dead", limit: int = 100, partition: int | None = None
    ) -> DeadPage:
        groups = self._calls.transport.groups
        wish = DeadWish(
            topic=self._topic, partition=partition, where=self._where, state=state, after=after, limit=limit
        )
        return await self._calls.run(lambda left: groups.list_dead(self._group, wish, left), safe=True)

    async def _redrive(self, wish: RedriveWish) -> Redriven:
        # Safe to repeat: a dead letter is redriven once.
        groups = self._calls.transport.groups
        return await self._calls.run(lambda left: groups.redrive(self._group, wish, left), safe=True)


def _share(rate: float | None) -> int:
    """How many in one call: at least one, and about four calls a second."""
    return _PER_CALL if rate is None else max(1, min(_PER_CALL, int(rate / 4)))
