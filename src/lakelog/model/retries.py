"""How a failed message is delivered again: how often, and after which delay."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from lakelog.model.arguments import check_number, check_whole

MAX_RETRIES = 1000
MAX_RETRY_SECONDS = 86_400

_DelayMs = Annotated[int, Meta(ge=0, le=MAX_RETRY_SECONDS * 1000)]


class RetryPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retry policy, made by `Exponential` or `Fixed`.

    Attributes:
        max: How often a message is delivered again, from 0 to 1000.
        strategy: "exponential" doubles the delay after each failure; "fixed" keeps it.
        base_ms: The delay after the first failure, in milliseconds, at most one day.
        max_ms: The longest delay of "exponential", in milliseconds, at most one day.
        jitter: The share of the delay of "exponential" that is taken away at random, from 0 to 1.
    """

    max: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = 3
    strategy: Literal["exponential", "fixed"] = "exponential"
    base_ms: _DelayMs = 1000
    max_ms: _DelayMs = 60_000
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2

    def __post_init__(self) -> None:
        if self.strategy == "fixed":
            # They have no effect, and two policies with the same effect are equal.
            force_setattr(self, "max_ms", 60_000)
            force_setattr(self, "jitter", 0.2)

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the delay in milliseconds.

        Args:
            failures: How often the message has failed, from 1.
            chance: A random number from 0 to 1, for the jitter.
        """
        if self.strategy == "fixed":
            return self.base_ms
        longest = min(self.base_ms * 2.0 ** min(failures - 1, 40), self.max_ms)
        return round(longest * (1 - self.jitter * chance))


def Exponential(
    *, max: int = 3, base_seconds: float = 1.0, max_seconds: float = 60.0, jitter: float = 0.2
) -> RetryPolicy:
    """Return a retry policy with growing delays: `base_seconds` after the first failure, then doubled each time.

    Args:
        max: How often a message is delivered again, from 0 to 1000. Default: 3, so that the fourth failure is the last.
        base_seconds: The delay after the first failure, in seconds, from 0 to 86,400. Default: 1.
        max_seconds: The longest delay, in seconds, from 0 to 86,400. Default: 60.
        jitter: The share of the delay that is taken away at random, from 0 to 1, so that messages that failed together
            do not come back together. Default: 0.2.
    """
    return RetryPolicy(
        max=check_whole("max", max, 0, MAX_RETRIES),
        base_ms=_to_ms("base_seconds", base_seconds),
        max_ms=_to_ms("max_seconds", max_seconds),
        jitter=check_number("jitter", jitter, 0, 1),
    )


def Fixed(*, max: int = 3, seconds: float = 1.0) -> RetryPolicy:
    """Return a retry policy with the same delay after each failure.

    Args:
        max: How often a message is delivered again, from 0 to 1000. Default: 3.
        seconds: The delay in seconds, from 0 to 86,400. Default: 1.
    """
    return RetryPolicy(
        max=check_whole("max", max, 0, MAX_RETRIES), strategy="fixed", base_ms=_to_ms("seconds", seconds)
    )


def _to_ms(name: str, seconds: float) -> int:
    return round(1000 * check_number(name, seconds, 0, MAX_RETRY_SECONDS))
