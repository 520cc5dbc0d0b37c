"""Samples in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from lakelog.storage.history import Resolution, Sample, StoredSample

_MINUTE = timedelta(minutes=1)


class MemorySamples:
    """Implements `lakelog.storage.history.SampleStore`."""

    def __init__(self) -> None:
        self._samples: dict[Resolution, dict[tuple[int, int, int], bytes]] = {each: {} for each in Resolution}
        """By resolution: bodies by group id, incarnation and minute."""

    async def samples_write(self, minute: int, samples: Sequence[Sample]) -> int:
        await asyncio.sleep(0)
        known = len(self._samples[Resolution.MINUTE])
        for resolution, kept in self._samples.items():
            for each in samples:
                kept.setdefault((each.group_id, each.incarnation, minute - minute % resolution), each.body)
        return len(self._samples[Resolution.MINUTE]) - known

    async def samples_read(
        self,
        group_ids: Sequence[int],
        incarnations: Sequence[int],
        resolution: Resolution,
        first: int,
        last: int,
        every: int = 1,
    ) -> list[StoredSample]:
        await asyncio.sleep(0)
        found = [
            StoredSample(group_id=group, incarnation=incarnation, minute=minute, body=body)
            for (group, incarnation, minute), body in self._samples[resolution].items()
            if group in group_ids and incarnation in incarnations and first <= minute <= last and minute % every == 0
        ]
        return sorted(found, key=lambda each: (each.group_id, each.incarnation, each.minute))

    async def samples_trim(self, minute: int) -> int:
        await asyncio.sleep(0)
        dropped = 0
        for resolution, kept in self._samples.items():
            old = [place for place in kept if place[2] < minute - resolution.kept // _MINUTE]
            dropped += bool(old)
            for place in old:
                del kept[place]
        return dropped
