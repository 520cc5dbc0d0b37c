"""The messages of one call of a batch handler, and their answers.

`batch_runner` decides when a batch runs. Handlers see it as a `Batch` or an `AsyncBatch`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.answer_rounds import ACK, Decision, in_rounds
from lakelog.client.worker.completion import MessageCompleter
from lakelog.client.worker.handlers import reason_of
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease, clipped, extend_all, key_of
from lakelog.client.worker.once import OnceGate, once_values
from lakelog.client.worker.tracebacks import traceback_of
from lakelog.errors import InvalidRequest, LakelogError, OutOfOrder
from lakelog.model.group import Order
from lakelog.model.lease import Answered, LeaseAnswer, Verb

_LATER = Decision(Verb.RELEASE, delay_seconds=1.0)


class BatchedMessage(LeasedMessage):
    """A message that a handler gets in a batch. More time for it is more time for the batch."""

    __slots__ = ("goes_on", "work")

    def __init__(self, message: ReceivedMessage[Any], lease: WorkerLease) -> None:
        super().__init__(message, lease)
        self.work: BatchWork | None = None
        """The batch, after it has started."""
        self.goes_on = False
        """True if the server has accepted that the message is finished, so that the next of its key may run."""

    def answered_by(self, decision: Decision, result: asyncio.Future[Answered]) -> None:
        """Record an answer that covers this message and others."""
        self.verb, self.reason, self.error, self._result = decision.verb, decision.reason, decision.error, result

    async def settle(
        self, verb: Verb, *, reason: str = "", delay_seconds: float | None = None, error: BaseException | None = None
    ) -> Answered:
        """Send the answer, like `LeasedMessage.settle`. After `OutOfOrder`, the message can be answered again."""
        try:
            return await super().settle(verb, reason=reason, delay_seconds=delay_seconds, error=error)
        except OutOfOrder:
            # Nothing was changed. The message is answered with the others when the handler ends.
            self.verb, self._result = None, None
            raise

    async def extend(self, seconds: float | None = None) -> None:
        """Give the handler of the batch more time, counted from now."""
        if self._result is not None or self.is_done:
            raise InvalidRequest("This message was already answered.")
        if self.work is not None:
            await self.work.extend([self], seconds)


class BatchWork:
    """One batch: the messages that its handler gets, and those that are answered without it."""

    def __init__(self, messages: Sequence[BatchedMessage], completer: MessageCompleter, order: Order) -> None:
        self.messages = messages
        self.given: list[BatchedMessage] = list(messages)
        """The messages that the handler gets."""
        self.failed: dict[Any, str] = {}
        """The messages that the handler has named as failed, with the reasons."""
        self.rests: list[tuple[BatchedMessage, deque[BatchedMessage]]] = []
        """Later messages of a key that did not fit in, after the last one that did."""
        self.late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the handler exceeds its deadline."""
        self.has_slot = True
        self._left_out: dict[BatchedMessage, Decision] = {}
        self._completer = completer
        self._order = order
        for leased in messages:
            leased.work = self

    @property
    def is_suspect(self) -> bool:
        return self.messages[0].lease.suspect

    @property
    def leases(self) -> set[WorkerLease]:
        return {leased.lease for leased in self.messages}

    def leave_out(self, wanted: Callable[[Any], bool] | None) -> int:
        """Take out messages whose value cannot be decoded or is not wanted. Return how many are not wanted."""
        skipped = 0
        for leased in self.messages:
            try:
                value = leased.message.value
            except Exception as error:
                reason = error.detail if isinstance(error, InvalidRequest) else reason_of(error)
                self._left_out[leased] = Decision(Verb.FAIL, reason, error)
                continue
            try:
                if wanted is not None and not wanted(value):
                    self._left_out[leased] = ACK
                    skipped += 1
            except Exception as error:
                self._left_out[leased] = Decision(Verb.NACK, reason_of(error), error)
        self.given = [leased for leased in self.messages if leased not in self._left_out]
        return skipped

    async def leave_repeats(self, once: OnceGate) -> int:
        """Take out messages that repeat a value. Return how many the server has finished.

        A message whose value runs already, in this batch or another, is released for a while with the later messages
        of its key: when it comes back, the server has accepted the run or not.
        """
        entered: list[BatchedMessage] = []
        released: set[object] = set()
        for leased in self.given:
            key = key_of(leased, self._order)
            try:
                has_value = once.read(leased)
            except Exception as error:
                self._left_out[leased] = Decision(Verb.NACK, reason_of(error), error)
                continue
            if key in released or (has_value and once.is_running(leased)):
                self._left_out[leased] = _LATER
                released |= {key} - {None}
            elif has_value:
                once.begin(leased)
                entered.append(leased)
        found: set[LeasedMessage] = set()
        with contextlib.suppress(LakelogError):
            # After a refusal all run: the acks tell which runs are accepted.
            found = await once.filter_repeats(entered)
        for leased in entered:
            leased.goes_on = leased in found
        self.given = [each for each in self.given if each not in self._left_out and each not in found]
        return len(found)

    # Calls of the handler ---------------------------------------------------------------------------------------------

    async def ack(self, held: Sequence[Any], failed: Mapping[Any, str]) -> None:
        """Ack the messages that have no answer yet, except those that failed. Raise the first refusal."""
        await self._answer_open(held, ACK, failed)

    async def nack(self, held: Sequence[Any], reason: str, delay_seconds: float | None) -> None:
        """Nack the messages that have no answer yet. Raise the first refusal."""
        await self._answer_open(held, Decision(Verb.NACK, reason, None, delay_seconds), {})

    async def extend(self, held: Sequence[Any], seconds: float | None) -> None:
        """Give the handler more time. The time is that of the whole batch."""
        await extend_all([leased for leased in self.given if not leased.is_done], seconds)

    async def _answer_open(self, held: Sequence[Any], decision: Decision, failed: Mapping[Any, str]) -> None:
        open_ = [leased for leased in held if leased.verb is None and not leased.is_done]
        refusal = await self._answer_all(open_, decision, failed)
        if refusal is not None:
            raise refusal

    # Answers ----------------------------------------------------------------------------------------------------------

    async def finish(self, decision: Decision) -> bool:
        """Answer all messages: those without an answer of their own with `decision`. Return whether any was."""
        is_used = any(leased.verb is None for leased in self.given)
        await self._answer_all(self.messages, decision, self.failed if decision.verb is Verb.ACK else {})
        return is_used

    async def _answer_all(
        self, messages: Sequence[BatchedMessage], default: Decision, failed: Mapping[Any, str]
    ) -> LakelogError | None:
        """Answer the messages round by round. Return the first refusal, if there was any."""

        def decide(leased: BatchedMessage) -> Decision:
            if leased.verb is not None:
                return Decision(leased.verb, leased.reason, leased.error)
            if leased in failed:
                return Decision(Verb.FAIL, failed[leased])
            return self._left_out.get(leased, default)

        refusals: list[LakelogError] = []
        open_ = [leased for leased in messages if not leased.is_done]
        returned = self._returned([leased for leased in messages if leased.is_done])
        for each in in_rounds(open_, decide, self._order):
            parts: dict[tuple[WorkerLease, Decision], list[BatchedMessage]] = {}
            for leased, decision in each.items():
                if key_of(leased, self._order) in returned:
                    # The server has taken it back with the earlier message of its key.
                    leased.is_done = True
                else:
                    parts.setdefault((leased.lease, decision), []).append(leased)
            found = await asyncio.gather(*(self._answer(*part, some) for part, some in parts.items()))
            refusals += [refusal for refusal in found if refusal is not None]
            returned |= self._returned(each)
        return refusals[0] if refusals else None

    def _returned(self, answered: Iterable[BatchedMessage]) -> set[object]:
        """Return the keys whose later messages the server has taken back."""
        return {key_of(leased, self._order) for leased in answered if not leased.goes_on} - {None}

    async def _answer(
        self, lease: WorkerLease, decision: Decision, messages: Sequence[BatchedMessage]
    ) -> LakelogError | None:
        """Give messages of a lease the same answer, and record the result. Return the refusal, if there was one."""
        explicit = [leased for leased in messages if leased.verb is not None]
        for leased in explicit:
            if not leased.is_done:
                settle = self._completer.settle(leased, decision.verb, decision.reason, decision.error)
                leased.goes_on = await settle
        open_ = [leased for leased in messages if leased.verb is None and not leased.is_done]
        if not open_:
            return None
        answer = LeaseAnswer(
            verb=decision.verb,
            partition=lease.partition,
            token=lease.token,
            offsets=tuple([leased.message.offset for leased in open_]),
            delay_ms=decision.delay_ms,
            reason=clipped(decision.reason),
            traceback=traceback_of(decision.error),
            once=once_values(open_) if decision.verb is Verb.ACK else {},
        )
        result = lease.sender.submit(answer, finished=len(open_))
        for leased in open_:
            leased.answered_by(decision, result)
        try:
            answered = await asyncio.shield(result)
        except LakelogError as refusal:
            self._completer.refused(open_[0], refusal, len(open_))
            for leased in open_:
                leased.is_done = True
            return refusal
        await self._accepted(open_, decision, answered)
        return None

    async def _accepted(self, messages: list[BatchedMessage], decision: Decision, answered: Answered) -> None:
        if decision.verb not in (Verb.NACK, Verb.FAIL):
            for leased in messages:
                leased.goes_on = await self._completer.accepted(leased, decision.verb, answered, None)
            return
        behind: set[object] = set()
        retried: list[BatchedMessage] = []
        for leased in messages:
            key, offset = key_of(leased, self._order), leased.message.offset
            if key is not None and key in behind:
                # It was returned with the earlier message of its key, which alone counts as failed.
                leased.is_done = True
            elif offset in answered.dead:
                own = Answered(dead=(offset,), max_attempts=answered.max_attempts)
                leased.goes_on = await self._completer.accepted(leased, decision.verb, own, decision.error)
            else:
                behind.add(key)
                retried.append(leased)
        if retried:
            self._completer.retried(retried, decision.verb, answered, decision.error)
