"""The rule for retries: which errors are temporary, how long to wait, and what the log says during an outage.

Every caller that retries uses it: single calls, publishes, answers of workers and of Spark. The rule itself neither
waits nor makes calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from lakelog.client.processes import log
from lakelog.errors import LakelogError, OutcomeUnknown, Overloaded, Unavailable


def may_be_written(error: LakelogError) -> bool:
    """Return whether the call may have taken effect: its answer was lost, or the server had an internal error."""
    return isinstance(error, OutcomeUnknown) or type(error) is LakelogError


def is_passing(error: LakelogError) -> bool:
    """Return whether the same call may succeed later."""
    return isinstance(error, Unavailable | Overloaded) or may_be_written(error)


def is_outage(error: LakelogError) -> bool:
    """Return whether the error is an outage. A server at capacity is not."""
    return is_passing(error) and not isinstance(error, Overloaded)


def is_undecided(result: object) -> TypeGuard[LakelogError]:
    """Return whether the result of one of several requests is not final, so that the request is sent again."""
    return isinstance(result, LakelogError) and is_passing(result)


class RetryRule:
    """Decides about the attempts of one call: whether to repeat it, and which error its caller gets.

    Args:
        is_repeatable: Whether the call may be repeated after an attempt that may have been written, because the server
            recognises the repeat or because it does no harm. Default: True.
    """

    __slots__ = ("_is_repeatable", "is_unknown")

    def __init__(self, *, is_repeatable: bool = True) -> None:
        self._is_repeatable = is_repeatable
        self.is_unknown = False
        """True if an earlier attempt may have been written."""

    def allows(self, error: LakelogError) -> bool:
        """Record the error of an attempt. Return whether another attempt may follow."""
        self.is_unknown = self.is_unknown or may_be_written(error)
        return is_passing(error) and (self._is_repeatable or not self.is_unknown)

    def final(self, error: LakelogError) -> LakelogError:
        """Return the error for the caller: `OutcomeUnknown` if an earlier attempt may have been written."""
        return OutcomeUnknown.after(error) if self.is_unknown and not may_be_written(error) else error


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetryPolicy:
    """The time limits of a call: `limit_seconds` for all attempts, `try_seconds` for one."""

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
        """Record a failure. Return the seconds until the next attempt."""
        pause = min(self._longest, self._first * 2.0 ** min(self.failed, 30)) * (0.5 + self._chance() / 2)
        self.failed += 1
        asked = error.subject.get("retry_after") if error is not None else None
        return max(pause, float(asked)) if isinstance(asked, int | float) else pause

    def reset(self) -> None:
        """Start again with the first pause."""
        self.failed = 0


class Attempts:
    """The attempts of one call within a time limit."""

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
        """Return how long the next attempt may take. `wait` is how long the server was asked to wait."""
        return max(0.1, min(self.left, self._try_seconds + wait))

    def pause(self, error: LakelogError) -> float | None:
        """Return the seconds until the next attempt, or None if the remaining time is too short."""
        pause = self._backoff.next(error)
        return pause if pause < self.left else None


logger = log.getChild("connection")
"""A logger below `lakelog`, because the command line reports outages itself and disables this one."""


_QUIET_SECONDS = 10.0
"""How long after a warning an unstable connection is not reported again."""


class Outage:
    """Reports outages, as the callers that retry see them. `name` is put before each line."""

    def __init__(self, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._prefix = f"{name}: " if name else ""
        self._clock = clock
        self._since: float | None = None
        self._warned = False
        self._quiet_until = float("-inf")

    def failed(self, error: LakelogError, seconds: float | None = None) -> None:
        """Record a failure that is retried for that many seconds; None means until it succeeds."""
        now = self._clock()
        if self._since is None:
            self._since = now
        if not self._warned and now >= self._quiet_until:
            self._warned = True
            self._quiet_until = now + _QUIET_SECONDS
            limit = "until it succeeds" if seconds is None else f"for up to {seconds:.0f} s"
            logger.warning("%s%s Retrying %s.", self._prefix, error.detail, limit)

    def ended(self) -> None:
        """Record that a call succeeded after failures."""
        if self._warned and self._since is not None:
            logger.info("%sCalls succeed again after %.1f s.", self._prefix, self._clock() - self._since)
        self._since, self._warned = None, False

    def given_up(self) -> None:
        """Record that the caller gets the error. If the next call fails too, that is a new outage."""
        self._since, self._warned, self._quiet_until = None, False, float("-inf")
