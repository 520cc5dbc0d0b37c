"""Values of which a group accepts one run: how they are computed, and how repeats are kept from running.

A message whose value is running in this process waits. Before a message runs, the server is asked whether the group
has accepted a run with its value, and finishes the message as filtered then. The ack carries the hash of the value, so
that of two processes that run the same value at the same time, one is accepted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from lakelog.client.functions import check_function
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.answers import AnswerSender
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.errors import InvalidRequest
from lakelog.model.lease import LeaseAnswer, Verb

_FORMS = "'key', 'headers.NAME', 'value', 'value.FIELD' or a function of (value)"

OnceValue = Callable[[ReceivedMessage[Any]], object]


def check_once(once: object) -> OnceValue:
    """Return the function that computes the value of a message, None if the message has none. Refuse other forms."""
    if not isinstance(once, str):
        check_function("once", once, ("value",))
        function: Any = once
        return lambda message: function(message.value)
    first, *path = once.split(".")
    if once == "key":
        return lambda message: message.key
    if first == "headers" and path and all(path):
        # The name of a header may have dots.
        name = once.removeprefix("headers.")
        return lambda message: message.headers.get(name)
    if first == "value" and all(path):
        return lambda message: _field(message.raw, path)
    raise InvalidRequest(f"`once` must be {_FORMS}, not {once!r}.")


def _field(raw: bytes | None, path: list[str]) -> object:
    """Return a field of a JSON value; None if the value is not JSON or does not have the field."""
    try:
        found = None if raw is None else json.loads(raw)
    except ValueError:
        return None
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def hash_of(value: object) -> str:
    """Return the hash of a value. Values of different types have different hashes, such as 1 and "1"."""
    if isinstance(value, bytes):
        data = b"b" + value
    else:
        try:
            data = b"j" + json.dumps(value, sort_keys=True).encode()
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"`once` must return text, bytes, a number, or a list of them: {error}.") from error
    return blake2b(data, digest_size=16).hexdigest()


class OnceGate:
    """Lets one message of each value run at a time in a subscription, unless the group has accepted a run."""

    def __init__(self, value: OnceValue, checks: AnswerSender) -> None:
        self._value = value
        self._checks = checks
        self._running: dict[str, asyncio.Future[None]] = {}

    def read(self, leased: LeasedMessage) -> bool:
        """Compute the value of a message, and return whether it has one. A message without a value always runs."""
        value = self._value(leased.message)
        leased.once = None if value is None else hash_of(value)
        return leased.once is not None

    async def enter(self, leased: LeasedMessage) -> bool:
        """Wait until the message may run. Return False if the server has finished it, because it repeats a value."""
        assert leased.once is not None
        while (running := self._running.get(leased.once)) is not None:
            await asyncio.wait([running])
        self.begin(leased)
        try:
            return not await self.filter_repeats([leased])
        except BaseException:
            self.leave([leased])
            raise

    def is_running(self, leased: LeasedMessage) -> bool:
        return leased.once in self._running

    def begin(self, leased: LeasedMessage) -> None:
        """Record that a message runs, until `leave`."""
        assert leased.once is not None
        self._running[leased.once] = asyncio.get_running_loop().create_future()
        leased.holds_once = True

    def leave(self, messages: Iterable[LeasedMessage]) -> None:
        """Let others with the values of these messages run. A message that does not run holds no value."""
        for leased in messages:
            if leased.holds_once and leased.once is not None:
                leased.holds_once = False
                self._running.pop(leased.once).set_result(None)

    async def filter_repeats(self, messages: Iterable[LeasedMessage]) -> set[LeasedMessage]:
        """Return the messages that the server has finished, because the group has accepted a run with their value."""
        by_lease: dict[WorkerLease, dict[int, LeasedMessage]] = {}
        for leased in messages:
            by_lease.setdefault(leased.lease, {})[leased.message.offset] = leased
        results = await asyncio.gather(
            *(self._checks.submit(_check(lease, list(some.values()))) for lease, some in by_lease.items())
        )
        found: set[LeasedMessage] = set()
        for some, answered in zip(by_lease.values(), results, strict=True):
            # The answers of several callers are merged, and share their result.
            found |= {some[offset] for offset in answered.filtered if offset in some}
        for leased in found:
            leased.is_done = True
        return found


def once_values(messages: Iterable[LeasedMessage]) -> dict[int, str]:
    """Return the hashes of the values, by offset, of the messages that have one."""
    return {leased.message.offset: leased.once for leased in messages if leased.once is not None}


def _check(lease: WorkerLease, messages: list[LeasedMessage]) -> LeaseAnswer:
    once = once_values(messages)
    return LeaseAnswer(
        verb=Verb.FILTER_REPEATS, partition=lease.partition, token=lease.token, offsets=tuple(once), once=once
    )
