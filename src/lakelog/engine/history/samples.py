"""Takes samples of all groups, and packs the figures of a sample. `timeline` reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from lakelog.engine.groups.figures import FigureReader, GroupFigures, GroupTopicFigures
from lakelog.errors import LakelogError
from lakelog.model.times import to_ms
from lakelog.model.topic import Scope
from lakelog.storage.history import Sample
from lakelog.storage.store import DEFAULT_CELL, Catalog, PartitionStore

MAX_PARTITIONS = 256
"""The lags of partitions are stored for topics with up to this number of partitions."""
_PER_WRITE = 1000


class SampleBody(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The packed figures of a sample. New fields are added at the end, with a default."""

    finished: int
    lag: int
    oldest_seconds: int
    leased: int
    waiting: int
    members: int
    dead_letters: int
    lags: Sequence[int] = ()
    failed: int = 0
    """How many deliveries failed, timed out or were lost in the minute before."""


_DECODER = msgspec.msgpack.Decoder(SampleBody)


def pack(body: SampleBody) -> bytes:
    """Return the figures as a sample stores them."""
    return msgspec.msgpack.encode(body)


def unpack(body: bytes) -> SampleBody:
    """Return the figures of a stored sample."""
    return _DECODER.decode(body)


class Sampler:
    """Takes one sample a minute of each group in each topic; one per engine. Several processes may do so at once."""

    def __init__(self, catalog: Catalog, cells: Mapping[int, PartitionStore], figures: FigureReader) -> None:
        self._catalog = catalog
        self._cells = cells
        self._clock = cells[DEFAULT_CELL].clock
        self._figures = figures
        self._last = 0

    async def sample(self) -> int:
        """Write the samples of the current minute unless this process did so before. Return how many are new."""
        minute = await self.minute()
        if minute == self._last:
            return 0
        scopes = {topic.scope.environment_id: topic.scope for topic in await self._catalog.topic_list_all()}
        written = 0
        for scope in scopes.values():
            samples = await self._read(scope, minute)
            for first in range(0, len(samples), _PER_WRITE):
                written += await self._catalog.samples.samples_write(minute, samples[first : first + _PER_WRITE])
        self._last = minute
        return written

    async def trim(self) -> int:
        """Drop samples that are too old, in whole tables, and return how many tables were dropped."""
        return await self._catalog.samples.samples_trim(await self.minute())

    async def minute(self) -> int:
        """Return the minutes since 1970 on the clock of the catalog's database."""
        return to_ms(await self._clock()) // 60_000

    async def _read(self, scope: Scope, minute: int) -> list[Sample]:
        """Return a sample of each group in each topic whose partitions can all be read."""
        figures = await self._figures.read(scope, lambda group, topic: True, explains=False)
        groups = {each.group: each for each in figures.groups}
        found = [each for each in figures.topics if each.is_whole and each.group in groups]
        failed = await self._failed({each.group_id for each in found}, minute)
        return [_sample(each, groups[each.group], failed[each.group_id, each.incarnation]) for each in found]

    async def _failed(self, group_ids: Collection[int], minute: int) -> Counter[tuple[int, int]]:
        """Return how many deliveries failed in the minute before, by group id and incarnation of the topic."""
        total: Counter[tuple[int, int]] = Counter()
        for store in self._cells.values() if group_ids else ():
            try:
                total.update(
                    await store.groups.incidents.failures_count(
                        sorted(group_ids), (minute - 1) * 60_000, minute * 60_000
                    )
                )
            except LakelogError:
                continue  # The cell does not respond: its groups have no sample.
        return total


def _sample(figures: GroupTopicFigures, group: GroupFigures, failed: int) -> Sample:
    body = SampleBody(
        finished=figures.finished,
        lag=figures.lag,
        oldest_seconds=round(figures.oldest_seconds),
        leased=figures.leased,
        waiting=figures.waiting,
        members=group.members,
        dead_letters=group.dead_letters,
        lags=figures.lags if len(figures.lags) <= MAX_PARTITIONS else (),
        failed=failed,
    )
    return Sample(group_id=figures.group_id, incarnation=figures.incarnation, body=pack(body))
