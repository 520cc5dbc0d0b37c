"""The rule for retries: which errors pass, and when a call may be repeated although it may have been written.

Every caller that retries uses it: single calls, publishes, answers of workers and of Spark. It neither waits nor calls.
"""

from __future__ import annotations

from typing import TypeGuard

from lakelog.errors import LakelogError, OutcomeUnknown, Overloaded, Unavailable


def may_be_written(error: LakelogError) -> bool:
    """Return whether the call may have taken effect: its answer was lost, or the server had an internal error."""
    return isinstance(error, OutcomeUnknown) or type(error) is LakelogError


def is_passing(error: LakelogError) -> bool:
    """Return whether the same call may succeed later."""
    return isinstance(error, Unavailable | Overloaded) or may_be_written(error)


def is_outage(error: LakelogError) -> bool:
    """Return whether the error means that something does not work. A server at capacity works."""
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
        """Whether an earlier attempt may have been written."""

    def allows(self, error: LakelogError) -> bool:
        """Note the error of an attempt. Return whether another attempt may follow."""
        self.is_unknown = self.is_unknown or may_be_written(error)
        return is_passing(error) and (self._is_repeatable or not self.is_unknown)

    def final(self, error: LakelogError) -> LakelogError:
        """Return the error for the caller: `OutcomeUnknown` if an earlier attempt may have been written."""
        return OutcomeUnknown.after(error) if self.is_unknown and not may_be_written(error) else error
