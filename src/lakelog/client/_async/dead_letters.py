"""The dead letters of a group, to list, to publish again, to discard and to purge."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta

from msgspec.structs import replace

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._runtime import async_sleep
from lakelog.client.dead_letter_filter import where_of
from lakelog.client.functions import check_function
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_seconds, check_text, check_texts, check_whole, refusal
from lakelog.model.dead_letter_clusters import (
    MAX_CLUSTERS,
    ClusterQuery,
    DeadLetterClusters,
    cluster_dead_letters,
)
from lakelog.model.dead_letters import (
    DEFAULT_MAX_REDRIVES,
    MAX_DEAD_LETTERS,
    DeadLetter,
    DeadLetterPage,
    DeadLetterQuery,
    DeadLetterRequest,
    DiscardRequest,
    PurgeDeadLettersRequest,
    Redriven,
    RedriveRequest,
    Repair,
    RetryRequest,
)
from lakelog.wire.operations import dead_letters as operations

Progress = Callable[[Redriven], None]
"""A function that gets the totals so far."""

_PER_CALL = 1000


class AsyncDeadLetters:
    """The dead letters of a group, made by `topic.dead_letters(group)`. `where` selects some of them.

    Iterate over the selected dead letters with `async for`.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        group: str,
        topic: str | None = None,
        where: str | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self._calls = calls
        self._group = group
        self._topic = topic
        self._where = where
        self._fingerprint = fingerprint

    def where(self, text: str | None = None, *, error: str | None = None, key: str | None = None) -> AsyncDeadLetters:
        """Return the dead letters that match all these conditions and those of earlier `where` calls.

        Args:
            text: A filter such as `"failures > 2 and error like '%timeout%'"`.
            error: A part of the error's text.
            key: The message's key.
        """
        narrowed = where_of(self._where, text, error, key)
        return AsyncDeadLetters(self._calls, self._group, self._topic, narrowed, self._fingerprint)

    def cluster(self, fingerprint: str) -> AsyncDeadLetters:
        """Return the dead letters of one cluster, of those that are selected.

        Args:
            fingerprint: The fingerprint of the cluster: 12 characters.
        """
        chosen = check_text("fingerprint", fingerprint)
        return AsyncDeadLetters(self._calls, self._group, self._topic, self._where, chosen)

    async def clusters(self, limit: int = 100) -> DeadLetterClusters:
        """Return the selected dead letters by cause: those with the same error, apart from what varies, are together.

        The server counts the dead letters of the group, the topic or the cluster. With `where`, the client reads and
        counts the selected dead letters, at most 10,000.

        Args:
            limit: The largest number of clusters to return, from 1 to 1,000; the largest clusters come first. Default:
                100.
        """
        check_whole("limit", limit, 1, MAX_CLUSTERS)
        if self._where is None:
            query = ClusterQuery(group=self._group, topic=self._topic, fingerprint=self._fingerprint, limit=limit)
            return await self._calls.call(operations.DEAD_LETTER_CLUSTERS, query)
        found = await self.list(MAX_DEAD_LETTERS + 1)
        examined = found[:MAX_DEAD_LETTERS]
        clusters = cluster_dead_letters(examined)
        return DeadLetterClusters(
            clusters=clusters[:limit],
            examined=len(examined),
            has_more=len(found) > len(examined) or len(clusters) > limit,
        )

    async def list(self, limit: int = 100, *, state: str = "dead") -> list[DeadLetter]:
        """Return the first dead letters.

        Args:
            limit: The largest number of dead letters to return, 0 or more. Default: 100.
            state: "dead" (the default), "redriven" or "discarded".
        """
        check_whole("limit", limit, 0)
        query = self._query(state=state)
        found: list[DeadLetter] = []
        while len(found) < limit:
            page = await self._page(replace(query, limit=min(_PER_CALL, limit - len(found))))
            found += page.letters
            if page.next is None:
                break
            query = replace(query, after=page.next)
        return found

    async def find(self, message_id: str) -> DeadLetter:
        """Return one dead letter with its value. An unknown id raises `DeadLetterNotFound`.

        Args:
            message_id: The id of the message.
        """
        request = DeadLetterRequest(group=self._group, message_id=message_id)
        return await self._calls.call(operations.DESCRIBE_DEAD_LETTER, request)

    async def __aiter__(self) -> AsyncIterator[DeadLetter]:
        query = self._query()
        while True:
            page = await self._page(query)
            for letter in page.letters:
                yield letter
            if page.next is None:
                return
            query = replace(query, after=page.next)

    async def redrive(
        self,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        limit: int | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Redriven:
        """Publish the selected dead letters again, for their group only. Return how many were redriven and refused.

        Args:
            dry_run: Return what would be done for the first 10,000, and publish nothing. Default: False.
            rate: The largest number of messages per second, above zero. Default: no limit.
            limit: The largest number of dead letters to redrive, 1 or more. Default: all.
            force: Redrive also messages that were redriven three times before. Default: False, which refuses them.
            progress: A function of the totals so far, called after each call to the server.
        """
        if rate is not None and not (isinstance(rate, int | float) and 0 < rate < math.inf):
            raise refusal("rate", "a number of messages per second above zero", rate)
        if limit is not None:
            check_whole("limit", limit, 1)
        if progress is not None:
            check_function("progress", progress, ("redriven",))
        request = RedriveRequest(
            group=self._group,
            topic=self._topic,
            where=self._where,
            fingerprint=self._fingerprint,
            dry_run=dry_run,
            force=force,
        )
        if dry_run:
            return await self._redrive(replace(request, limit=min(limit or MAX_DEAD_LETTERS, MAX_DEAD_LETTERS)))
        total = Redriven()
        begun = time.monotonic()
        while True:
            share = _share(rate) if limit is None else min(_share(rate), limit - total.redriven)
            done = await self._redrive(replace(request, limit=share))
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
        repair = None
        if value is not None or headers is not None:
            repair = Repair(value=value, content_type=content_type, headers=headers)
        request = RetryRequest(group=self._group, message_id=message_id, force=force, repaired=repair)
        return await self._calls.call(operations.RETRY_DEAD_LETTER, request)

    async def redrive_these(
        self,
        message_ids: Sequence[str],
        *,
        repaired: Mapping[str, Repair] | None = None,
        max_redrives: int = DEFAULT_MAX_REDRIVES,
        force: bool = False,
        dry_run: bool = False,
        repeat: bool = True,
    ) -> Redriven:
        """Publish named dead letters again, some of them repaired. If none can be redriven, raise the reason.

        Args:
            message_ids: The ids of the dead letters, at most 10,000.
            repaired: The value and headers to publish instead of a message's own, by id. Default: nothing.
            max_redrives: Refuse a message that was redriven this many times before. Default: 3.
            force: Redrive also messages that were redriven too often. Default: False.
            dry_run: Return what would be done, and publish nothing. Default: False.
            repeat: Repeat a call whose response was lost. Dead letters that the first call redrove count as refused.
                Default: True; False raises `OutcomeUnknown`.
        """
        if isinstance(message_ids, str):
            raise InvalidRequest(f"`message_ids` must be a list of ids. Write [{message_ids!r}].")
        check_whole("max_redrives", max_redrives, 0)
        request = RedriveRequest(
            group=self._group,
            message_ids=tuple(message_ids),
            repaired=repaired or None,
            max_redrives=max_redrives,
            force=force,
            dry_run=dry_run,
        )
        return await self._calls.call(operations.REDRIVE, request, is_repeatable=repeat)

    async def page(self, partition: int | None, after: str | None, limit: int = _PER_CALL) -> DeadLetterPage:
        """Return some dead letters, for programs that continue later or read partitions in parallel.

        Args:
            partition: The partition of the topic; None for all.
            after: The `next` of the previous page; None for the first page.
            limit: The largest number of dead letters to return, from 1 to 1000. Default: 1000.
        """
        return await self._page(replace(self._query(), partition=partition, after=after, limit=limit))

    async def retry_all(self) -> Redriven:
        """Publish all selected dead letters again: `redrive` without arguments."""
        return await self.redrive()

    async def discard(self, *message_ids: str) -> int:
        """Discard dead letters permanently. Return how many. They stay listed with `state="discarded"`.

        Args:
            message_ids: The ids of dead letters. Default: all that are selected.
        """
        for message_id in message_ids:
            check_text("message_ids", message_id)
        request = DiscardRequest(
            group=self._group, topic=self._topic, where=self._where, fingerprint=self._fingerprint, limit=_PER_CALL
        )
        if message_ids:
            request = DiscardRequest(group=self._group, message_ids=message_ids)
        total = 0
        while True:
            done = (await self._calls.call(operations.DISCARD_DEAD_LETTERS, request)).discarded
            total += done
            if message_ids or done < _PER_CALL:
                return total

    async def purge(self, *, older_than: timedelta | float) -> int:
        """Delete dead letters that are redriven or discarded. Return how many. Dead letters in the state "dead" stay.

        Args:
            older_than: The least time since the messages became dead letters, in seconds or as a timedelta, 0 or more.

        Raises:
            InvalidRequest: The dead letters are selected with `where` or `cluster`, which a purge does not take.
        """
        if self._where is not None or self._fingerprint is not None:
            raise InvalidRequest("A purge takes no filter. Call it on the dead letters of the group or the topic.")
        request = PurgeDeadLettersRequest(
            group=self._group,
            topic=self._topic,
            older_than_ms=int(check_seconds("older_than", older_than) * 1000),
        )
        total = 0
        while True:
            done = (await self._calls.call(operations.PURGE_DEAD_LETTERS, request)).purged
            total += done
            if done < request.limit:
                return total

    def __repr__(self) -> str:
        topic = "" if self._topic is None else f", topic={self._topic!r}"
        where = "" if self._where is None else f", where={self._where!r}"
        cluster = "" if self._fingerprint is None else f", cluster={self._fingerprint!r}"
        return f"AsyncDeadLetters(group={self._group!r}{topic}{where}{cluster})"

    def _query(self, state: str = "dead") -> DeadLetterQuery:
        return DeadLetterQuery(
            group=self._group, topic=self._topic, where=self._where, fingerprint=self._fingerprint, state=state
        )

    async def _page(self, query: DeadLetterQuery) -> DeadLetterPage:
        return await self._calls.call(operations.LIST_DEAD_LETTERS, query)

    async def _redrive(self, request: RedriveRequest) -> Redriven:
        return await self._calls.call(operations.REDRIVE, request)


def _share(rate: float | None) -> int:
    """Return how many to redrive in one call: at least one, and about four calls per second."""
    return _PER_CALL if rate is None else max(1, min(_PER_CALL, int(rate / 4)))
