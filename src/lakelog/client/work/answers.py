"""What a worker has to say about its leases, sent in as few calls as the server's pace allows.

One call is under way at a time; what is said meanwhile goes together in the next. A call is repeated until it has a
definite answer: tokens make that safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from lakelog.client import processes
from lakelog.client.backoff import Pauses, is_passing
from lakelog.client.group_values import Answer, Answered
from lakelog.errors import LakelogError

Send = Callable[[Sequence[Answer]], Awaitable[list[Answered | LakelogError]]]

_MOST = 1000
_Said = tuple[Answer, "asyncio.Future[Answered]"]


class Answerer:
    """Belongs to one subscription and one event loop."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._said: list[_Said] = []
        self._sending: asyncio.Task[None] | None = None
        self._give_up_at = float("inf")

    def say(self, answer: Answer) -> asyncio.Future[Answered]:
        """Ends when the server has answered: with an error if it refused."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._said.append((answer, future))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="lakelog-answers")
        return future

    def give_up_after(self, seconds: float) -> None:
        """The worker ends: what has no answer by then is left to the lease's end."""
        self._give_up_at = time.monotonic() + seconds

    async def flush(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        # A turn of the loop: handlers that end together are answered together.
        await asyncio.sleep(0)
        while self._said:
            said, self._said = self._said[:_MOST], self._said[_MOST:]
            answers, futures = _merged(said)
            try:
                results = await self._repeated(answers)
            except BaseException as error:
                results = [error if isinstance(error, LakelogError) else LakelogError(repr(error))] * len(answers)
                if not isinstance(error, Exception):
                    _resolve(futures, results)
                    raise
            _resolve(futures, results)

    async def _repeated(self, answers: Sequence[Answer]) -> list[Answered | LakelogError]:
        pauses = Pauses()
        while True:
            try:
                return await self._send(answers)
            except LakelogError as error:
                pause = pauses.next(error)
                if not is_passing(error) or time.monotonic() + pause > self._give_up_at:
                    raise
                if pauses.failed == 3:
                    processes.log.warning("%d answers wait for the server: %s", len(answers), error.detail)
            await asyncio.sleep(pause)


def _merged(said: Sequence[_Said]) -> tuple[list[Answer], list[list[asyncio.Future[Answered]]]]:
    """Acks of one lease as one answer, and so what is given back without a word; everything else by itself."""
    answers: list[Answer] = []
    offsets: list[list[int]] = []
    futures: list[list[asyncio.Future[Answered]]] = []
    places: dict[object, int] = {}
    for answer, future in said:
        alike = (answer.verb, answer.partition, answer.token, answer.delay_ms, answer.reason)
        place = places.get(alike) if answer.verb in ("ack", "release") else None
        if place is None:
            places[alike] = len(answers)
            answers.append(answer)
            offsets.append([*answer.offsets])
            futures.append([future])
        else:
            offsets[place] += answer.offsets
            futures[place].append(future)
    merged = [replace(answer, offsets=tuple(sorted(all_))) for answer, all_ in zip(answers, offsets, strict=True)]
    return merged, futures


def _resolve(
    futures: Sequence[Sequence[asyncio.Future[Answered]]], results: Sequence[Answered | BaseException]
) -> None:
    for group, result in zip(futures, results, strict=True):
        for future in group:
            if future.done():
                continue
            if isinstance(result, Answered):
                future.set_result(result)
            else:
                future.set_exception(result)
                # Not everybody waits for what is said while a worker stops.
                future.exception()
