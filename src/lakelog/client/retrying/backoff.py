"""When a call is repeated, and after which pause. Pure: it neither sleeps nor calls.

A call that may have been written is repeated only if the caller says that repeating it is safe.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from lakelog.errors import LakelogError, OutcomeUnknown, Overloaded, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetryPolicy:
    """A call takes at most `limit_seconds`, and one try of it at most `try_seconds`."""

    limit_seconds: float = 30.0
    try_seconds: float = 10.0
    first_pause_seconds: float = 0.01
    longest_pause_seconds: float = 2.0


def may_be_written(error: LakelogError) -> bool:
    """Whether nobody can say if the call took effect. An internal error of the server is one of these."""
    return isinstance(error, OutcomeUnknown) or type(error) is LakelogError


def is_passing(error: LakelogError) -> bool:
    """Whether the same call may succeed later."""
    return isinstance(error, Unavailable | Overloaded) or may_be_written(error)


def is_outage(error: LakelogError) -> bool:
    """Return whether the error means that something does not work; a full server, or changed partitions, do not."""
    return is_passing(error) and not isinstance(error, Overloaded)


def is_undecided(result: object) -> TypeGuard[LakelogError]:
    """Whether one of several things that were said has no definite result, and may be said again."""
    return isinstance(result, LakelogError) and is_passing(result)


# Its own: the application may have seeded the shared one, and would find its numbers changed by our pauses.
_chance = random.Random()


class Attempts:
    """The tries of one call: how much time is left, and how long to pause after a failure."""

    def __init__(
        self,
        policy: CallRetryPolicy,
        *,
        limit_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = _chance.random,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._deadline = clock() + (policy.limit_seconds if limit_seconds is None else limit_seconds)
        self.failed = 0

    @property
    def left(self) -> float:
        return self._deadline - self._clock()

    def seconds(self, wait: float = 0.0) -> float:
        """How long the next try may take; `wait` is what the server was asked to wait itself."""
        return max(0.1, min(self.left, self._policy.try_seconds + wait))

    def pause(self, error: LakelogError) -> float | None:
        """Seconds until the next try; None when the time does not suffice for one."""
        growth = self._policy.first_pause_seconds * 2.0 ** min(self.failed, 30)
        self.failed += 1
        pause = min(self._policy.longest_pause_seconds, growth) * (0.5 + self._chance() / 2)
        asked = error.subject.get("retry_after")
        if isinstance(asked, int | float):
            pause = max(pause, float(asked))
        return pause if pause < self.left else None


class Backoff:
    """Pauses that grow without an end of the tries: for workers, which outlive every outage."""

    def __init__(
        self, *, first_seconds: float = 0.05, longest_seconds: float = 5.0, chance: Callable[[], float] = _chance.random
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._chance = chance
        self.failed = 0

    def next(self, error: LakelogError | None = None) -> float:
        """Seconds until the next try."""
        pause = min(self._longest, self._first * 2.0 ** min(self.failed, 30)) * (0.5 + self._chance() / 2)
        self.failed += 1
        asked = error.subject.get("retry_after") if error is not None else None
        return max(pause, float(asked)) if isinstance(asked, int | float) else pause

    def reset(self) -> None:
        self.failed = 0
