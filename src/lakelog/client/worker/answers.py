"""Sends the answers of a worker about its leases, in as few calls as possible.

One call runs at a time; the answers that arrive during it go together in the next one. While answers are held back,
they are sent with the worker's next call for messages instead (see `polling`). An answer without a definite result is
sent again until it has one: tokens make repeats safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from lakelog.client import processes
from lakelog.client.retrying import Backoff, is_undecided
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, LeaseAnswer, Verb

SendAnswers = Callable[[Sequence[LeaseAnswer]], Awaitable[list[Answered | LakelogError]]]

MAX_ANSWERS = 1000
_MAX_CHARS = 1 << 20
"""The limit for the reasons and tracebacks of one call. They fit into the server's limit even with all escapes."""
_SHORT_PAUSE_SECONDS = 0.2
_MERGED = (Verb.ACK, Verb.RELEASE, Verb.FILTER_REPEATS)


@dataclass(slots=True)
class _PendingAnswer:
    """One answer, and the future of its result."""

    answer: LeaseAnswer
    result: asyncio.Future[Answered]
    call: int = 0
    """The number of the first call that sent the answer; 0 before that."""


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """The answers of one call, and the callers that wait for the result of each."""

    answers: list[LeaseAnswer]
    waiting: list[list[_PendingAnswer]]
    finished: int
    """The number of messages that these answers finish."""


class AnswerSender:
    """Sends the answers of one subscription, in one event loop. It calls `changed` for each answer that it holds."""

    def __init__(self, send: SendAnswers, changed: Callable[[], None] = lambda: None) -> None:
        self._send = send
        self._changed = changed
        self._pending: list[_PendingAnswer] = []
        self._finished = 0
        self._calls = 0
        self._is_holding = False
        self._news = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._give_up_at = float("inf")

    @property
    def finished(self) -> int:
        """The number of messages that the answers of `collect` would finish."""
        return 0 if self._is_sending else self._finished

    def submit(self, answer: LeaseAnswer, finished: int = 0) -> asyncio.Future[Answered]:
        """Send an answer. Return the future of its result, which is an error if the server refuses it."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingAnswer(answer, future))
        self._finished += finished
        self._news.set()
        if self._is_holding:
            self._changed()
        else:
            self.send_pending()
        return future

    def hold(self) -> None:
        """Hold answers back for the worker's next call for messages, which takes them with `collect`."""
        self._is_holding = True

    def send_directly(self) -> None:
        """Send answers in separate calls from now on, starting with those that are held."""
        self._is_holding = False
        self.send_pending()

    def send_pending(self) -> None:
        if self._pending and not self._is_sending:
            self._sending = asyncio.create_task(self._send_all(), name="lakelog-answers")
            self._sending.add_done_callback(lambda _: self._changed())

    def collect(self) -> AnswerBatch | None:
        """Return the answers that can go with a call for messages. Pass them to `settle` or `put_back` later.

        Return None while answers are sent in a separate call: some of them may wait for a database that is unavailable.
        """
        return None if self._is_sending or not self._pending else self._next()

    def settle(self, batch: AnswerBatch, results: Sequence[Answered | LakelogError]) -> None:
        """Pass the results on. Send answers without a definite result again, in a separate call."""
        again = _resolve(batch.waiting, [None if is_undecided(each) else each for each in results])
        self._pending[:0] = again
        if again:
            self.send_pending()

    def put_back(self, batch: AnswerBatch) -> None:
        """Send the answers again, in a separate call: the call failed, or its outcome is unknown."""
        self._pending[:0] = [pending for each in batch.waiting for pending in each]
        self.send_pending()

    def give_up_after(self, seconds: float) -> None:
        """Stop retrying after that time, because the worker ends. Leases without an answer expire."""
        self._give_up_at = time.monotonic() + seconds
        self._news.set()

    @property
    def _is_sending(self) -> bool:
        return self._sending is not None and not self._sending.done()

    def _next(self) -> AnswerBatch:
        """Return the answers for the next call."""
        count = fitting([pending.answer for pending in self._pending[:MAX_ANSWERS]])
        batch, self._pending = self._pending[:count], self._pending[count:]
        finished, self._finished = self._finished, 0
        merged = AnswerBatch(*_merged(batch), finished)
        self._calls += 1
        for pending in batch:
            pending.call = pending.call or self._calls
        return merged

    async def flush(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        # Wait one turn of the loop, so that handlers that end together are answered together.
        await asyncio.sleep(0)
        backoff = Backoff()
        try:
            while self._pending:
                await self._send_some(backoff)
                if self._is_holding and not backoff.failed:
                    break
        except BaseException as error:
            batch, self._pending = self._pending, []
            _resolve([batch], [LakelogError(repr(error))])
            raise

    async def _send_some(self, backoff: Backoff) -> None:
        batch = self._next()
        results: Sequence[Answered | LakelogError]
        try:
            results = await self._send(batch.answers)
        except LakelogError as error:
            results = [error] * len(batch.answers)
        except BaseException as error:
            _resolve(batch.waiting, [LakelogError(repr(error))] * len(batch.answers))
            if not isinstance(error, Exception):
                raise
            return
        undecided = [each for each in results if is_undecided(each)]
        if not undecided:
            backoff.reset()
        pause = backoff.next(undecided[0]) if undecided else 0.0
        if not undecided or time.monotonic() + pause > self._give_up_at:
            _resolve(batch.waiting, results)
            return
        if backoff.failed == 3:
            processes.log.warning("%d acks are not sent yet: %s Retrying.", len(undecided), undecided[0].detail)
        self._pending[:0] = _resolve(batch.waiting, [None if is_undecided(each) else each for each in results])
        await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        """Wait until the next attempt, or until a new answer arrives, whose database may be available."""
        short = min(seconds, _SHORT_PAUSE_SECONDS)
        self._news.clear()
        await asyncio.sleep(short)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds - short):
                await self._news.wait()


def fitting(answers: Sequence[LeaseAnswer]) -> int:
    """Return how many of the first answers fit into one call, at least one."""
    chars = 0
    for count, answer in enumerate(answers[:MAX_ANSWERS]):
        chars += len(answer.reason) + len(answer.traceback or "")
        if chars > _MAX_CHARS and count:
            return count
    return min(len(answers), MAX_ANSWERS)


def _merged(batch: Sequence[_PendingAnswer]) -> tuple[list[LeaseAnswer], list[list[_PendingAnswer]]]:
    """Merge the acks of one lease into one answer, its checks for repeats, and its releases without a reason.

    Keep all other answers separate.

    An answer that was sent before is merged only with the answers of the same call: if the lease has expired since, the
    server recognises the answers that it accepted and refuses the others.
    """
    answers: list[LeaseAnswer] = []
    offsets: list[list[Any]] = []
    once: list[dict[int, str]] = []
    waiting: list[list[_PendingAnswer]] = []
    places: dict[object, int] = {}
    for pending in batch:
        answer = pending.answer
        alike = (answer.verb, answer.partition, answer.token, answer.delay_ms, answer.reason, pending.call)
        place = places.get(alike) if answer.verb in _MERGED else None
        if place is None:
            places[alike] = len(answers)
            answers.append(answer)
            offsets.append([*answer.offsets])
            once.append(dict(answer.once))
            waiting.append([pending])
        else:
            offsets[place] += answer.offsets
            once[place].update(answer.once)
            waiting[place].append(pending)
    parts = zip(answers, offsets, once, strict=True)
    merged = [structs.replace(answer, offsets=tuple(sorted(all_)), once=values) for answer, all_, values in parts]
    return merged, waiting


def _resolve(
    waiting: Sequence[Sequence[_PendingAnswer]], results: Sequence[Answered | LakelogError | None]
) -> list[_PendingAnswer]:
    """Resolve the futures that have a result. Return the answers that have none."""
    again: list[_PendingAnswer] = []
    for each, result in zip(waiting, results, strict=True):
        if result is None:
            again += each
            continue
        for pending in each:
            future = pending.result
            if future.done():
                continue
            if isinstance(result, Answered):
                future.set_result(result)
            else:
                future.set_exception(result)
                # Callers do not await all their answers while a worker stops.
                future.exception()
    return again
