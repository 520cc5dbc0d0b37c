"""Storage protocol of the history of groups: samples, in the catalog. The rules of `store` apply.

Stores treat the bodies of samples as opaque bytes. Times are minutes since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Protocol


class Resolution(IntEnum):
    """The minutes between two samples of a table."""

    MINUTE = 1
    TEN_MINUTES = 10
    HOUR = 60

    @property
    def kept(self) -> timedelta:
        """How long samples are kept at least. They are dropped by the day, and those of an hour by 30 days."""
        return _KEPT[self]


_KEPT = {
    Resolution.MINUTE: timedelta(days=2),
    Resolution.TEN_MINUTES: timedelta(days=30),
    Resolution.HOUR: timedelta(days=400),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The figures of a group in a topic at one time."""

    group_id: int
    incarnation: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSample:
    """A sample of a group in a topic, with the minute at which its period begins."""

    group_id: int
    incarnation: int
    minute: int
    body: bytes


class SampleStore(Protocol):
    """The samples of the installation."""

    async def samples_write(self, minute: int, samples: Sequence[Sample]) -> int:
        """Write samples of a minute, and return how many are new. A sample that exists stays unchanged.

        The first sample of ten minutes and of an hour is kept in those resolutions, too.
        """
        ...

    async def samples_read(
        self,
        group_ids: Sequence[int],
        incarnations: Sequence[int],
        resolution: Resolution,
        first: int,
        last: int,
        every: int = 1,
    ) -> list[StoredSample]:
        """Return the samples of groups from the minute `first` to `last`, by group, topic and minute.

        With `every`, only those whose minute is a multiple of it.
        """
        ...

    async def samples_trim(self, minute: int) -> int:
        """Drop samples that are too old at this minute, in whole tables, and return how many tables were dropped."""
        ...
