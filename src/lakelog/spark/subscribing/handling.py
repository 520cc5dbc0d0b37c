"""The process of a handler: it loads the handler, runs messages one by one, and reports the outcome of each.

The process is a child of Spark's Python worker, and a handler may end it by `os._exit`, a crash or the memory limit.
Every outcome is therefore written before the next message starts. `child_processes` reads the outcomes.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn

import msgspec

from lakelog.client._sync.delivery import Delivery
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.handlers import Handler, is_awaitable, reason_of, run_awaitable
from lakelog.client.worker.leased_message import clipped
from lakelog.client.worker.tracebacks import traceback_of
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_positive_seconds, check_seconds

HEAD = struct.Struct("<BqI")
"""The event, a number (milliseconds, or -1), and the length of the text that follows."""
LENGTH = struct.Struct("<Q")


class ChildEvent(IntEnum):
    """An event from a child. READY or UNUSABLE comes first, then one of the first five for each message."""

    ACK = 1
    NACK = 2
    FAIL = 3
    DISCARD = 4
    RELEASE = 5
    """The message was not run, because an earlier message of its key failed."""
    EXTEND = 10
    """The handler may take this long from now on."""
    READY = 11
    UNUSABLE = 12
    """The handler cannot be loaded on this machine."""


class HandlerOutcome(NamedTuple):
    """The outcome of one message."""

    event: ChildEvent
    reason: str = ""
    delay_ms: int | None = None
    traceback: str | None = None


class SlotResult(msgspec.Struct):
    """The outcomes of the messages of a slot, in their order. The executor sends it to the driver."""

    outcomes: list[HandlerOutcome] = []
    crashed: int = 0
    timed_out: int = 0
    unusable: str | None = None
    """The reason why the handler cannot be loaded on the executor. In that case, there are no outcomes."""


class HandlerTask(NamedTuple):
    """A message to run. Messages of one chain run in order, and stop after a failure."""

    message: ReceivedMessage[Any]
    attempt: int
    failures: int
    chain: int
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledHandler:
    """The handler, pickled on the driver and loaded only in the child."""

    body: bytes
    """The pickled function, filter (or None) and type of values (or None)."""
    name: str
    timeout_seconds: float

    @property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()


def pickled_handler(
    function: Callable[..., Any],
    wanted: Callable[[Any], bool] | None,
    kind: type[Any] | None,
    timeout: timedelta | float,
) -> PickledHandler:
    """Return the pickled handler; raise an error before any message is leased if it cannot be pickled."""
    from pyspark import cloudpickle

    handler = Handler(function)
    if handler.is_async:
        raise InvalidRequest("A handler on Spark must be a plain function. Run a coroutine in it with asyncio.run.")
    try:
        body: bytes = cloudpickle.dumps((function, wanted, kind))  # type: ignore[no-untyped-call]
    except Exception as exc:
        raise InvalidRequest(
            f"The handler {handler.name} cannot be sent to executors: {reason_of(exc)}. Open connections "
            "inside the handler, or in a module that it imports."
        ) from exc
    return PickledHandler(body=body, name=handler.name, timeout_seconds=check_positive_seconds("ack_timeout", timeout))


class TaskDelivery(Delivery[Any]):
    """A message for a handler on Spark. Its answer is kept until the handler returns."""

    __slots__ = ("_outbox", "_timeout", "outcome")

    def __init__(self, task: HandlerTask, outbox: int, timeout_seconds: float) -> None:
        super().__init__(task)  # type: ignore[arg-type]  # As much of a `Held` as the properties need.
        self.outcome: HandlerOutcome | None = None
        self._outbox = outbox
        self._timeout = timeout_seconds

    def ack(self) -> None:
        self._settle(HandlerOutcome(ChildEvent.ACK))

    def nack(self, *, delay: timedelta | float | None = None, reason: str = "") -> None:
        delay_ms = None if delay is None else round(check_seconds("delay", delay) * 1000)
        self._settle(HandlerOutcome(ChildEvent.NACK, reason, delay_ms, traceback_of(sys.exception())))

    def fail(self, reason: str = "") -> None:
        self._settle(HandlerOutcome(ChildEvent.FAIL, reason, None, traceback_of(sys.exception())))

    def discard(self, reason: str = "") -> None:
        self._settle(HandlerOutcome(ChildEvent.DISCARD, reason))

    def extend(self, seconds: timedelta | float | None = None) -> None:
        more = self._timeout if seconds is None else check_positive_seconds("seconds", seconds)
        say(self._outbox, ChildEvent.EXTEND, number=round(more * 1000))

    def _settle(self, outcome: HandlerOutcome) -> None:
        if self.outcome is not None and self.outcome.event is not outcome.event:
            raise InvalidRequest(f"This message was already answered with {self.outcome.event.name.lower()}.")
        self.outcome = self.outcome or outcome


class HandlerRunner:
    """The loaded handler, and the pipe for its events."""

    def __init__(self, pickled: PickledHandler, outbox: int) -> None:
        function, self._wanted, kind = pickle.loads(pickled.body)
        self._function = function
        self._wants_delivery = Handler(function).wants_delivery
        self._codec: Codec[Any] | None = None if kind is None else Codec(kind)
        self._timeout = pickled.timeout_seconds
        self._outbox = outbox

    def run_all(self, tasks: Sequence[HandlerTask]) -> None:
        blocked: set[int] = set()
        for task in tasks:
            if task.chain in blocked:
                say(self._outbox, ChildEvent.RELEASE)
                continue
            outcome = self.run(task)
            if outcome.event in (ChildEvent.NACK, ChildEvent.FAIL):
                blocked.add(task.chain)
            number = -1 if outcome.delay_ms is None else outcome.delay_ms
            say(self._outbox, outcome.event, text_of(outcome), number)

    def run(self, task: HandlerTask) -> HandlerOutcome:
        if self._codec is not None:
            task = task._replace(message=msgspec.structs.replace(task.message, _codec=self._codec))
        try:
            value = task.message.value
        except InvalidRequest as error:
            return HandlerOutcome(ChildEvent.FAIL, error.detail)
        except Exception as error:
            return HandlerOutcome(ChildEvent.FAIL, reason_of(error), None, traceback_of(error))
        delivery = TaskDelivery(task, self._outbox, self._timeout)
        try:
            if self._wanted is None or self._wanted(value):
                result = self._function(value, delivery) if self._wants_delivery else self._function(value)
                if result is not None and is_awaitable(result):
                    asyncio.run(run_awaitable(result))
        except BaseException as error:
            # Includes `sys.exit` in a handler, which ends the message and not the process.
            return delivery.outcome or HandlerOutcome(ChildEvent.NACK, reason_of(error), None, traceback_of(error))
        return delivery.outcome or HandlerOutcome(ChildEvent.ACK)


def serve(inbox: int, outbox: int, pickled: PickledHandler) -> None:
    """Run the main loop of the process until the inbox is closed."""
    try:
        runner = HandlerRunner(pickled, outbox)
    except BaseException as error:
        say(outbox, ChildEvent.UNUSABLE, clipped(reason_of(error)))
        return
    say(outbox, ChildEvent.READY)
    with os.fdopen(inbox, "rb") as pipe:
        while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
            runner.run_all(pickle.loads(pipe.read(LENGTH.unpack(head)[0])))


def serve_and_end(inbox: int, outbox: int, pickled: PickledHandler) -> NoReturn:
    """Serve, then exit without running the parent's exit handlers, buffers or frames."""
    code = 1
    try:
        serve(inbox, outbox, pickled)
        code = 0
    finally:
        os._exit(code)


def text_of(outcome: HandlerOutcome) -> str:
    """Return the reason and the traceback as one text, separated by a NUL, which neither contains."""
    reason = clipped(outcome.reason)
    return reason if outcome.traceback is None else f"{reason}\0{outcome.traceback}"


def outcome_of(event: ChildEvent, text: str, number: int) -> HandlerOutcome:
    """Return the outcome from an event, in the parent."""
    reason, _, traceback = text.partition("\0")
    return HandlerOutcome(event, reason, number if number >= 0 else None, traceback or None)


def say(outbox: int, event: ChildEvent, text: str = "", number: int = -1) -> None:
    raw = text.encode("utf-8", errors="replace")
    data = HEAD.pack(event, number, len(raw)) + raw
    while data:
        data = data[os.write(outbox, data) :]
