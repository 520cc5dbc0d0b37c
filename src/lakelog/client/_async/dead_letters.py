"""Dead letters of a group in the caller's hands: looked at, published again for their group, or discarded."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from msgspec import structs

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._runtime import async_sleep
from lakelog.client.dead_letter_filter import where_of
from lakelog.client.functions import check_function
from lakelog.client.group_values import DeadWish, RedriveWish
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_seconds, check_text, check_texts, check_whole, refusal
from lakelog.model.dead_letters import DeadLetter, DeadLetterPage, PurgeDeadLettersRequest, Redriven, Repair
from lakelog.wire.operations.dead_letters import PURGE_DEAD_LETTERS

Progress = Callable[[Redriven], None]
"""Told how many there are so far."""

_STATES = ("dead", "redriven", "discarded")
_PER_CALL = 1000
_LOOKED_AT = 10_000
"""By a dry run, which is one call."""


class AsyncDeadLetters:
    """The dead letters of a group, made by `topic.dead_letters(group)`. `where` selects some of them.

    Iterating gives all that are selected, with `async for`.
    """

    def __init__(self, calls: AsyncCalls, group: str, topic: str | None = None, where: str | None = None) -> None:
        self._calls = calls
        self._group = group
        self._topic = topic
        self._where = where

    def where(self, text: str | None = None, *, error: str | None = None, key: str | None = None) -> AsyncDeadLetters:
        """Return the dead letters that match all of the conditions, and those of `where` calls before.

        Args:
            text: A filter such as `"failures > 2 and error like '%timeout%'"`.
            error: A part of the error's text.
            key: The message's key.
        """
        narrowed = where_of(self._where, text, error, key)
        return AsyncDeadLetters(self._calls, self._group, self._topic, narrowed)

    async def list(self, limit: int = 100, *, state: str = "dead") -> list[DeadLetter]:
        """Return the first dead letters.

        Args:
            limit: How many to return at most, 0 or more. Default: 100.
            state: "dead" (the default), "redriven" or "discarded".
        """
        check_whole("limit", limit, 0)
        if state not in _STATES:
            raise InvalidRequest(f"`state` must be one of {', '.join(map(repr, _STATES))}, not {state!r}.")
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
        """Return one dead letter with its value. An unknown id raises `DeadLetterNotFound`.

        Args:
            message_id: The id of the message.
        """
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
        """Publish the selected dead letters again, for their group alone. Return how many were redriven and refused.

        Args:
            dry_run: Return what would be done, looking at the first 10,000, and publish nothing. Default: False.
            rate: Messages per second at most, above zero. Default: as fast as the server takes them.
            limit: How many to redrive at most, 1 or more. Default: all.
            force: Redrive also messages that were redriven three times before. Default: False, which refuses them.
            progress: A function of the totals so far, called after each call to the server.
        """
        if rate is not None and not (isinstance(rate, int | float) and 0 < rate < math.inf):
            raise refusal("rate", "a number of messages per second above zero", rate)
        if limit is not None:
            check_whole("limit", limit, 1)
        if progress is not None:
            check_function("progress", progress, ("redriven",))
        wish = RedriveWish(topic=self._topic, where=self._where, dry_run=dry_run, force=force)
        if dry_run:
            return await self._redrive(replace(wish, limit=min(limit or _LOOKED_AT, _LOOKED_AT)))
        total = Redriven()
        begun = time.monotonic()
        while True:
            share = _share(rate) if limit is None else min(_share(rate), limit - total.redriven)
            done = await self._redrive(replace(wish, limit=share))
            total = structs.replace(
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
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> Redriven:
        """Publish one dead letter again for its group.

        Args:
            message_id: The id of the dead letter.
            value: The bytes to publish instead of the message's own value; None keeps the value.
            content_type: The content type of `value`, such as "application/json"; None keeps the message's own.
            headers: The headers to publish instead of the message's own; None keeps the headers.
            force: Publish the message also if it was redriven too often before.
        """
        if value is not None and not isinstance(value, bytes):
            raise InvalidRequest(
                f"`value` must be the new bytes, not {type(value).__name__}. Write json.dumps(value).encode() for JSON."
            )
        if headers is not None:
            check_texts("headers", headers)
        repaired = None
        if value is not None or headers is not None:
            repaired = {message_id: Repair(value=value, content_type=content_type, headers=headers)}
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
        """Publish named dead letters again, some of them repaired. If none can be redriven, raise the reason.

        Args:
            message_ids: The ids of the dead letters, at most 10,000.
            repaired: The value and headers to publish instead of a message's own, by id. Default: nothing.
            max_redrives: Refuse a message that was redriven this many times before. Default: 3.
            force: Redrive also messages that were redriven too often. Default: False.
            dry_run: Return what would be done, and publish nothing. Default: False.
        """
        if isinstance(message_ids, str):
            raise InvalidRequest(f"`message_ids` must be a list of ids. Write [{message_ids!r}].")
        check_whole("max_redrives", max_redrives, 0)
        wish = RedriveWish(
            message_ids=tuple(message_ids),
            repaired=repaired or None,
            max_redrives=max_redrives,
            force=force,
            dry_run=dry_run,
        )
        return await self._redrive(wish)

    async def page(self, partition: int, after: str | None, limit: int = _PER_CALL) -> DeadLetterPage:
        """Return some dead letters of one partition, for programs that read partitions in parallel.

        Args:
            partition: The partition of the topic.
            after: The `next` of the page before; None for the first page.
            limit: How many to return at most, from 1 to 1000. Default: 1000.
        """
        return await self._page(after, limit=limit, partition=partition)

    async def retry_all(self) -> Redriven:
        """Publish all selected dead letters again: `redrive` without arguments."""
        return await self.redrive()

    async def discard(self, *message_ids: str) -> int:
        """Give up dead letters for good. Return how many. They stay listed with `state="discarded"`.

        Args:
            message_ids: The ids of dead letters. Without any: all that are selected.
        """
        wish = DeadWish(topic=self._topic, where=self._where, limit=_PER_CALL)
        for message_id in message_ids:
            check_text("message_ids", message_id)
        if message_ids:
            wish = DeadWish(message_ids=message_ids, limit=len(message_ids))
        groups = self._calls.transport.groups
        total = 0
        while True:
            done = await self._calls.run(lambda left: groups.discard(self._group, wish, left), safe=True)
            total += done
            if message_ids or done < _PER_CALL:
                return total

    async def purge(self, *, older_than: timedelta | float) -> int:
        """Delete dead letters that are redriven or discarded. Return how many. Those in the state dead stay.

        Args:
            older_than: How long ago the messages became dead letters at least, in seconds or as a timedelta, 0 or more.

        Raises:
            InvalidRequest: The dead letters are selected with `where`, which a purge does not take.
        """
        if self._where is not None:
            raise InvalidRequest("A purge takes no filter. Call it on the dead letters of the group or the topic.")
        request = PurgeDeadLettersRequest(
            group=self._group,
            topic=self._topic,
            older_than_ms=int(check_seconds("older_than", older_than) * 1000),
        )
        total = 0
        while True:
            done = (await self._calls.call(PURGE_DEAD_LETTERS, request)).purged
            total += done
            if done < request.limit:
                return total

    def __repr__(self) -> str:
        topic = "" if self._topic is None else f", topic={self._topic!r}"
        where = "" if self._where is None else f", where={self._where!r}"
        return f"AsyncDeadLetters(group={self._group!r}{topic}{where})"

    async def _page(
        self, after: str | None, state: str = "dead", limit: int = 100, partition: int | None = None
    ) -> DeadLetterPage:
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
