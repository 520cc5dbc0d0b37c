"""The retention of a group's dead letters: how long and how many of them are kept. Maintenance enforces it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from lakelog.model.arguments import check_duration, check_whole
from lakelog.model.limits import MAX_DURATION_MS
from lakelog.model.structs import Duration, Request

MAX_KEPT_DEAD_LETTERS = 1_000_000
"""The largest `max_count`. Enforcing a count reads an index entry for each dead letter that is kept."""
_MILLISECOND = timedelta(milliseconds=1)

_Count = Annotated[int, Meta(ge=1, le=MAX_KEPT_DEAD_LETTERS)]


class DeadLetterRetention(Request, frozen=True, kw_only=True):
    """The retention of a group's dead letters. Without limits, all of them are kept.

    Attributes:
        max_age_ms: Dead letters that died longer ago than this are removed, in milliseconds.
        max_count: How many dead letters to keep in each partition, from 1 to 1,000,000. Finished ones (redriven or
            discarded) are counted separately, so that they never displace those that wait for a decision.
    """

    max_age_ms: Duration | None = None
    max_count: _Count | None = None

    @property
    def is_unlimited(self) -> bool:
        """Return whether all dead letters are kept."""
        return self.max_age_ms is None and self.max_count is None

    @property
    def max_age(self) -> timedelta | None:
        """Return the age above which dead letters are removed; None if there is no limit."""
        return None if self.max_age_ms is None else self.max_age_ms * _MILLISECOND


class DeadLetterRetentionChange(Request, frozen=True, kw_only=True):
    """A change of the retention of dead letters. An omitted limit stays; null removes it.

    Attributes:
        max_age_ms: The new `DeadLetterRetention.max_age_ms`.
        max_count: The new `DeadLetterRetention.max_count`.
    """

    max_age_ms: Duration | UnsetType | None = UNSET
    max_count: _Count | UnsetType | None = UNSET

    @classmethod
    def of(cls, max_age: timedelta | UnsetType | None, max_count: int | UnsetType | None) -> DeadLetterRetentionChange:
        """Return the change from the arguments of a caller.

        Args:
            max_age: The new age; None removes the limit, UNSET keeps it.
            max_count: The new count; None removes the limit, UNSET keeps it.
        """
        age_ms: int | UnsetType | None = UNSET
        if max_age is not UNSET:
            age_ms = None if max_age is None else _to_ms(max_age)
        if max_count is not None and max_count is not UNSET:
            check_whole("dead_letter_max_count", max_count, 1, MAX_KEPT_DEAD_LETTERS)
        return cls(max_age_ms=age_ms, max_count=max_count)

    def changed(self, present: DeadLetterRetention) -> DeadLetterRetention:
        """Return the retention after the change."""
        return DeadLetterRetention(
            max_age_ms=present.max_age_ms if self.max_age_ms is UNSET else self.max_age_ms,
            max_count=present.max_count if self.max_count is UNSET else self.max_count,
        )


def _to_ms(max_age: timedelta) -> int:
    longest = MAX_DURATION_MS * _MILLISECOND
    return check_duration("dead_letter_max_age", max_age, _MILLISECOND, longest) // _MILLISECOND
