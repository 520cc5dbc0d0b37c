"""How long to wait between the attempts of a call. It neither sleeps nor calls; `rule` decides whether to repeat."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from lakelog.errors import LakelogError


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetryPolicy:
    """A call takes at most `limit_seconds`, and one attempt at most `try_seconds`."""

    limit_seconds: float = 30.0
    try_seconds: float = 10.0
    first_pause_seconds: float = 0.01
    longest_pause_seconds: float = 2.0


# A generator of its own: pauses must not change the numbers of an application that has seeded the shared one.
_chance = random.Random()


class Backoff:
    """Pauses that double after each failure, without a limit on the number of attempts.

    A pause is shortened by up to half at random, and is never shorter than the `retry_after` of the error.
    """

    def __init__(
        self, *, first_seconds: float = 0.05, longest_seconds: float = 5.0, chance: Callable[[], float] = _chance.random
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._chance = chance
        self.failed = 0

    def next(self, error: LakelogError | None = None) -> float:
        """Note a failure. Return the seconds until the next attempt."""
        pause = min(self._longest, self._first * 2.0 ** min(self.failed, 30)) * (0.5 + self._chance() / 2)
        self.failed += 1
        asked = error.subject.get("retry_after") if error is not None else None
        return max(pause, float(asked)) if isinstance(asked, int | float) else pause

    def reset(self) -> None:
        """Start again with the first pause."""
        self.failed = 0


class Attempts:
    """The attempts of one call within a limit of time."""

    def __init__(
        self,
        policy: CallRetryPolicy,
        *,
        limit_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = _chance.random,
    ) -> None:
        self._try_seconds = policy.try_seconds
        self._clock = clock
        self._deadline = clock() + (policy.limit_seconds if limit_seconds is None else limit_seconds)
        self._backoff = Backoff(
            first_seconds=policy.first_pause_seconds, longest_seconds=policy.longest_pause_seconds, chance=chance
        )

    @property
    def failed(self) -> int:
        """The number of failed attempts."""
        return self._backoff.failed

    @property
    def left(self) -> float:
        """The seconds until the limit."""
        return self._deadline - self._clock()

    def seconds(self, wait: float = 0.0) -> float:
        """Return how long the next attempt may take. `wait`: how long the server was asked to wait itself."""
        return max(0.1, min(self.left, self._try_seconds + wait))

    def pause(self, error: LakelogError) -> float | None:
        """Return the seconds until the next attempt, or None if the time does not suffice for one."""
        pause = self._backoff.next(error)
        return pause if pause < self.left else None
