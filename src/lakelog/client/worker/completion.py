"""Completes a message after its handler: the answer to the server, counts, log lines and hooks.

`lease_runner` decides when handlers run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakelog.client import processes
from lakelog.client.functions import name_of
from lakelog.client.worker.failures import HandlerFailureLog
from lakelog.client.worker.handlers import begin_hook, reason_of
from lakelog.client.worker.leased_message import LeasedMessage
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.threads import HandlerThreads
from lakelog.client.worker.tracebacks import user_exc_info
from lakelog.errors import LakelogError, LeaseLost, NotOwner, OutOfOrder
from lakelog.model.lease import Answered, Verb

log = processes.log

_LOST = (LeaseLost, NotOwner, OutOfOrder)
_FAILURES: tuple[Verb, ...] = (Verb.NACK, Verb.FAIL)
NO_ANSWER = "The handler returned without an answer. With ack='manual' it must call ack, nack, fail or discard."


@dataclass(slots=True)
class WorkerCounts:
    """The messages of a subscription since its start, by outcome.

    Attributes:
        acked: Messages that were finished, including those that the filter rejected.
        skipped: Messages that were acked without running the handler, because the filter rejected the value.
        failed: Attempts that ended with a nack or a fail.
        timed_out: Attempts that exceeded `ack_timeout`, which count as failed too.
        discarded: Messages that the handler discarded.
        dead: Messages that became dead letters.
        lost: Messages whose answer the server refused, because their lease had ended.
        released: Messages that were given back without counting a failure.
        filtered: Messages that were finished because the group had accepted a run with their value (`once`).
        unaccepted: Those of them whose handler had run, while another run with the value was accepted.
    """

    acked: int = 0
    skipped: int = 0
    failed: int = 0
    timed_out: int = 0
    discarded: int = 0
    dead: int = 0
    lost: int = 0
    released: int = 0
    filtered: int = 0
    unaccepted: int = 0


class MessageCompleter:
    """Completes the messages of one running subscription."""

    def __init__(self, subscription: Subscription, threads: HandlerThreads) -> None:
        self.counts = WorkerCounts()
        self.failure_log = HandlerFailureLog(subscription.topic, subscription.group)
        self._options = subscription.options
        self._on_ack, self._on_dead = subscription.on_ack, subscription.on_dead
        self._threads = threads

    async def ended(self, leased: LeasedMessage, running: asyncio.Future[Any]) -> bool:
        """Answer a message whose handler has ended. Return the same as `settle`."""
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if leased.verb is not None:
            # An explicit answer of the handler counts, even if the handler fails after it.
            if error is not None:
                what = f"the handler failed after its {leased.verb}"
                self.failure_log.write(logging.WARNING, leased, what, reason_of(error), error)
            return await self.settle(leased, leased.verb, leased.reason, leased.error)
        if error is not None:
            return await self.settle(leased, Verb.NACK, reason_of(error), error)
        if self._options.ack == "manual":
            return await self.settle(leased, Verb.NACK, NO_ANSWER, None)
        return await self.settle(leased, Verb.ACK, "", None)

    async def settle(
        self,
        leased: LeasedMessage,
        verb: Verb,
        reason: str,
        error: BaseException | None,
        delay_seconds: float | None = None,
    ) -> bool:
        """Return whether the key's next message may run: the server has accepted that this one is finished."""
        try:
            answered = await leased.settle(verb, reason=reason, delay_seconds=delay_seconds, error=error)
        except LakelogError as refusal:
            if verb in _FAILURES:
                what = f"attempt {leased.failures + 1} failed"
                self.failure_log.write(logging.WARNING, leased, what, reason, error)
            self.refused(leased, refusal)
            return False
        return await self.accepted(leased, verb, answered, error)

    async def accepted(
        self, leased: LeasedMessage, verb: Verb, answered: Answered, error: BaseException | None
    ) -> bool:
        """Count and log an answer that the server accepted, and call the hooks. Return the same as `settle`."""
        leased.is_done = True
        if leased.message.offset in answered.filtered:
            self.repeated(1, has_run=True)
            return True
        self._count(verb)
        if verb in _FAILURES:
            self.failure_log.failed(leased, verb, answered, error)
        if answered.dead or (verb is Verb.ACK and self._on_ack):
            await self._tell(leased, verb, answered, error)
        return verb in (Verb.ACK, Verb.DISCARD) or bool(answered.dead)

    def repeated(self, count: int, *, has_run: bool) -> None:
        """Count messages that the server finished because they repeat a value."""
        self.counts.filtered += count
        self.counts.unaccepted += count if has_run else 0

    def retried(
        self, messages: Sequence[LeasedMessage], verb: Verb, answered: Answered, error: BaseException | None
    ) -> None:
        """Count and log the nack of several messages of a batch, which are delivered again."""
        for leased in messages:
            leased.is_done = True
        self.counts.failed += len(messages)
        self.failure_log.failed(messages[0], verb, answered, error, len(messages) - 1)

    def refused(self, leased: LeasedMessage, error: LakelogError, count: int = 1) -> None:
        """Count and log an answer that the server refused, for `count` messages of a lease."""
        leased.is_done = True
        if isinstance(error, _LOST):
            self.counts.lost += count
            leased.lease.lost = leased.lease.lost or isinstance(error, LeaseLost)
        where, verb = self.failure_log.where(leased, count - 1), leased.verb or Verb.EXTEND
        log.warning("%s: the server refused the answer %s: %s", where, verb, error.detail)

    def _count(self, verb: Verb) -> None:
        name = {Verb.ACK: "acked", Verb.DISCARD: "discarded", Verb.RELEASE: "released"}.get(verb, "failed")
        setattr(self.counts, name, getattr(self.counts, name) + 1)

    async def _tell(self, leased: LeasedMessage, verb: Verb, answered: Answered, error: BaseException | None) -> None:
        for hook in self._on_ack if verb is Verb.ACK else ():
            await self._hook(hook, leased)
        if answered.dead:
            self.counts.dead += 1
            reason = error if isinstance(error, Exception) else LakelogError(leased.reason)
            for hook in self._on_dead:
                await self._hook(hook, leased, reason)

    async def _hook(self, hook: Any, leased: LeasedMessage, *args: object) -> None:
        try:
            await begin_hook(hook, leased, args, self._threads)
        except Exception as error:
            text = f"the hook {name_of(hook)} failed: {reason_of(error)}"
            log.error("%s: %s", self.failure_log.where(leased), text, exc_info=user_exc_info(error))
