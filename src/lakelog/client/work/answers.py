"""What a worker has to say about its leases, sent in as few calls as the server's pace allows.

One call is under way at a time; what is said meanwhile goes together in the next. What has no definite answer is said
again, until it has one: tokens make that safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from lakelog.client import processes
from lakelog.client.backoff import Pauses, is_undecided
from lakelog.client.group_values import Answer, Answered
from lakelog.errors import LakelogError

Send = Callable[[Sequence[Answer]], Awaitable[list[Answered | LakelogError]]]

_MOST = 1000
_SHORT_PAUSE_SECONDS = 0.2
_Said = tuple[Answer, "asyncio.Future[Answered]"]


class Answerer:
    """Belongs to one subscription and one event loop."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._said: list[_Said] = []
        self._news = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._give_up_at = float("inf")

    def say(self, answer: Answer) -> asyncio.Future[Answered]:
        """Ends when the server has answered: with an error if it refused."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._said.append((answer, future))
        self._news.set()
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="lakelog-answers")
        return future

    def give_up_after(self, seconds: float) -> None:
        """The worker ends: what has no answer by then is left to the lease's end."""
        self._give_up_at = time.monotonic() + seconds
        self._news.set()

    async def flush(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        # A turn of the loop: handlers that end together are answered together.
        await asyncio.sleep(0)
        pauses = Pauses()
        try:
            while self._said:
                await self._send_some(pauses)
        except BaseException as error:
            said, self._said = self._said, []
            _resolve([said], [LakelogError(repr(error))])
            raise

    async def _send_some(self, pauses: Pauses) -> None:
        said, self._said = self._said[:_MOST], self._said[_MOST:]
        answers, sayings = _merged(said)
        results: Sequence[Answered | LakelogError]
        try:
            results = await self._send(answers)
        except LakelogError as error:
            results = [error] * len(answers)
        except BaseException as error:
            _resolve(sayings, [LakelogError(repr(error))] * len(answers))
            if not isinstance(error, Exception):
                raise
            return
        waiting = [each for each in results if is_undecided(each)]
        if not waiting:
            pauses.reset()
        pause = pauses.next(waiting[0]) if waiting else 0.0
        if not waiting or time.monotonic() + pause > self._give_up_at:
            _resolve(sayings, results)
            return
        if pauses.failed == 3:
            processes.log.warning("%d answers wait for the server: %s", len(waiting), waiting[0].detail)
        self._said[:0] = _resolve(sayings, [None if is_undecided(each) else each for each in results])
        await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        """Shorter, if there is something new to say: it may be for a database that answers."""
        short = min(seconds, _SHORT_PAUSE_SECONDS)
        self._news.clear()
        await asyncio.sleep(short)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds - short)


def _merged(said: Sequence[_Said]) -> tuple[list[Answer], list[list[_Said]]]:
    """Acks of one lease as one answer, and so what is given back without a word; everything else by itself."""
    answers: list[Answer] = []
    offsets: list[list[int]] = []
    sayings: list[list[_Said]] = []
    places: dict[object, int] = {}
    for answer, future in said:
        alike = (answer.verb, answer.partition, answer.token, answer.delay_ms, answer.reason)
        place = places.get(alike) if answer.verb in ("ack", "release") else None
        if place is None:
            places[alike] = len(answers)
            answers.append(answer)
            offsets.append([*answer.offsets])
            sayings.append([(answer, future)])
        else:
            offsets[place] += answer.offsets
            sayings[place].append((answer, future))
    merged = [replace(answer, offsets=tuple(sorted(all_))) for answer, all_ in zip(answers, offsets, strict=True)]
    return merged, sayings


def _resolve(sayings: Sequence[Sequence[_Said]], results: Sequence[Answered | LakelogError | None]) -> list[_Said]:
    """Those who have no result are returned."""
    again: list[_Said] = []
    for each, result in zip(sayings, results, strict=True):
        if result is None:
            again += each
            continue
        for _, future in each:
            if future.done():
                continue
            if isinstance(result, Answered):
                future.set_result(result)
            else:
                future.set_exception(result)
                # Not everybody waits for what is said while a worker stops.
                future.exception()
    return again
