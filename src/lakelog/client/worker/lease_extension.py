"""Decides which leases to extend now, and records the results. It does not wait.

Times are those of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lakelog.errors import LakelogError, LeaseLost, NotFound, NotOwner
from lakelog.model.lease import Answered, AnswersRequest, LeaseAnswer, Verb

_OVER = (LeaseLost, NotOwner, NotFound)


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The topic, the group and the owner of leases."""

    topic: str
    group: str
    owner: str

    def request(self, answers: Sequence[LeaseAnswer]) -> AnswersRequest:
        """Return the call that sends these answers."""
        return AnswersRequest(topic=self.topic, group=self.group, owner=self.owner, answers=tuple(answers))


@dataclass(slots=True)
class KeptLease:
    """A lease to keep until `until`. Its next extension is due at `due`."""

    holder: LeaseHolder
    partition: int
    token: int
    lease_seconds: float
    until: float
    due: float


@dataclass(frozen=True, slots=True)
class ExtensionBatch:
    """Extensions of one holder's leases, for one call."""

    holder: LeaseHolder
    numbers: list[int]
    answers: list[LeaseAnswer]
    patience: float


SendExtensions = Callable[[LeaseHolder, Sequence[LeaseAnswer], float], list[Answered | LakelogError]]
"""A function that sends the extensions of one holder, within that many seconds."""


class ExtensionSchedule:
    """The leases to keep, by number. An extension is due after a third of the lease."""

    def __init__(self) -> None:
        self._kept: dict[int, KeptLease] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, number: int, kept: KeptLease) -> None:
        self._kept[number] = kept

    def prolong(self, number: int, until: float) -> None:
        kept = self._kept.get(number)
        if kept is not None:
            kept.until = until

    def drop(self, number: int) -> None:
        self._kept.pop(number, None)

    def next_due(self) -> float | None:
        return min((kept.due for kept in self._kept.values() if kept.due <= kept.until), default=None)

    def due(self, now: float) -> list[ExtensionBatch]:
        """Return the extensions to send. A lease past its `until` expires, unless `prolong` moves it."""
        found: dict[LeaseHolder, list[int]] = {}
        for number, kept in self._kept.items():
            if kept.due <= now < kept.until:
                found.setdefault(kept.holder, []).append(number)
        return [self._extends(holder, numbers) for holder, numbers in found.items()]

    def settle(self, extensions: ExtensionBatch, results: Sequence[Answered | LakelogError], now: float) -> None:
        """Record the results: drop a lost lease, and retry a failed extension soon."""
        for number, result in zip(extensions.numbers, results, strict=True):
            kept = self._kept.get(number)
            if kept is None:
                continue
            kept.due = now + kept.lease_seconds / (12 if isinstance(result, LakelogError) else 3)
            if isinstance(result, _OVER):
                self.drop(number)

    def _extends(self, holder: LeaseHolder, numbers: list[int]) -> ExtensionBatch:
        leases = [self._kept[number] for number in numbers]
        patience = min(5.0, min(kept.lease_seconds for kept in leases) / 3)
        return ExtensionBatch(holder, numbers, [_answer(kept) for kept in leases], patience)


def send_due(
    schedule: ExtensionSchedule, send: SendExtensions, guard: AbstractContextManager[object]
) -> LakelogError | None:
    """Send the due extensions, without holding the lock during calls. Return the error of a failed call, if any."""
    failed: LakelogError | None = None
    with guard:
        due = schedule.due(time.monotonic())
    for extensions in due:
        begun = time.monotonic()
        results: Sequence[Answered | LakelogError]
        try:
            results = send(extensions.holder, extensions.answers, extensions.patience)
        except LakelogError as error:
            failed = error
            results = [error] * len(extensions.numbers)
        with guard:
            schedule.settle(extensions, results, begun)
    return failed


def _answer(kept: KeptLease) -> LeaseAnswer:
    # Always for the whole lease: if it expired together with the handler's deadline, no time would be left for the
    # nack.
    lease_ms = round(kept.lease_seconds * 1000)
    return LeaseAnswer(verb=Verb.EXTEND, partition=kept.partition, token=kept.token, lease_ms=lease_ms)
