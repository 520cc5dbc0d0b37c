"""A consumer as a member of a cursor group: its partitions, their positions, and commits.

`reading_consumer` reads the partitions and decides what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime

from msgspec.structs import asdict

from lakelog.client import processes
from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.group import AsyncGroup
from lakelog.client._async.group_member import AsyncGroupMember
from lakelog.client.consumer.core import Place
from lakelog.client.consumer.options import ConsumerOptions
from lakelog.client.consumer.read_progress import ReadProgress
from lakelog.errors import NotOwner, PositionRefused, StaleGeneration, UnknownMember
from lakelog.model.group import GroupKind
from lakelog.model.membership import JoinRequest, Membership
from lakelog.model.seek import GroupPosition, SeekRequest
from lakelog.wire.operations import groups as operations

_REFUSED = (StaleGeneration, NotOwner, UnknownMember)

Moved = Callable[[Mapping[Place, ReadProgress | None]], Awaitable[None]]
"""Called with the partitions that changed: their progress from now on, or None for one that the member gives up."""


class CursorMember:
    """Keeps the membership and the positions of one consumer.

    Args:
        options: The options of the consumer.
        group: The name of the group.
        calls: Makes the calls.
        moved: Called when partitions are assigned or revoked, or when a seek moved the group.
    """

    def __init__(self, options: ConsumerOptions, group: str, calls: AsyncCalls, moved: Moved) -> None:
        self.progress: dict[Place, ReadProgress] = {}
        self._group = AsyncGroup(group, calls)
        self._calls = calls
        self._options = options
        self._member_options = options.member_options()
        self._moved = moved
        self._changing = asyncio.Lock()
        """Held while the partitions change: two changes at once would read a partition twice."""
        self._member = AsyncGroupMember(group, self._join, self._heartbeat, self._leave)
        self._member_id = processes.unique_name()

    async def start(self) -> None:
        """Join the group and start to read its partitions. Raise an error if the server refuses."""
        await self._member.join()

    async def keep_alive(self) -> None:
        """Send heartbeats until `leave`."""
        await self._member.keep_alive(self._member_options.heartbeat_seconds)

    async def leave(self) -> None:
        """Leave the group."""
        await self._member.leave()

    async def commit(self, positions: Mapping[Place, int]) -> None:
        """Commit positions of partitions that the member has. Skip those that do not advance."""
        for (topic, epoch), offsets in self._by_epoch(self._advancing(positions)).items():
            await self._commit(topic, epoch, offsets)

    async def commit_leaving(self, positions: Mapping[Place, int]) -> None:
        """Commit positions of partitions that the member gives up, once. A refusal means that it is too late."""
        for (topic, epoch), offsets in self._by_epoch(self._advancing(positions)).items():
            await self._send(topic, epoch, offsets)

    async def seek(
        self, places: Collection[Place], *, timestamp: datetime | None = None, offset: int | None = None
    ) -> None:
        """Move the whole group, in these partitions or in all. Its members stay members."""
        every: list[tuple[str, int | None]] = [(each.name, None) for each in self._options.topics]
        for topic, partition in [*places] or every:
            request = SeekRequest(
                group=self._group.name, topic=topic, partition=partition, timestamp=timestamp, offset=offset
            )
            await self._calls.call(operations.SEEK, request)
        await self.refresh()

    async def refresh(self) -> None:
        """Read the positions of the group again, and continue from there if the group has moved."""
        async with self._changing:
            await self._refresh()

    async def _refresh(self) -> None:
        moved: dict[Place, ReadProgress | None] = {}
        for topic in {topic for topic, _ in self.progress}:
            for partition, position in (await self._group.positions(topic)).items():
                known = self.progress.get((topic, partition))
                if known is None:
                    continue
                # It is ahead if another member had the partition while this one was not in the group.
                if position.epoch != known.epoch or position.offset > known.given:
                    moved[(topic, partition)] = _progress(position)
                else:
                    known.committed = max(known.committed, position.offset)
        await self._apply(moved)

    async def _commit(self, topic: str, epoch: int, offsets: dict[int, int]) -> None:
        for attempt in range(2):
            try:
                await self._send(topic, epoch, offsets)
            except PositionRefused:
                # A seek moved the group, so these messages are read again or skipped as the seek said.
                await self.refresh()
                return
            except _REFUSED:
                if attempt:
                    raise
                await self._member.heartbeat()
                offsets = {each: offset for each, offset in offsets.items() if (topic, each) in self.progress}
                if not offsets:
                    return
            else:
                return

    async def _send(self, topic: str, epoch: int, offsets: Mapping[int, int]) -> None:
        member = self._member.membership
        assert member is not None
        await self._group.commit(topic, offsets, member_id=self._member_id, generation=member.generation, epoch=epoch)
        for partition, offset in offsets.items():
            if (topic, partition) in self.progress:
                self.progress[topic, partition].committed = offset

    def _advancing(self, positions: Mapping[Place, int]) -> dict[Place, int]:
        return {
            place: offset
            for place, offset in positions.items()
            if place in self.progress and offset > self.progress[place].committed
        }

    def _by_epoch(self, positions: Mapping[Place, int]) -> dict[tuple[str, int], dict[int, int]]:
        found: dict[tuple[str, int], dict[int, int]] = {}
        for (topic, partition), offset in positions.items():
            found.setdefault((topic, self.progress[topic, partition].epoch), {})[partition] = offset
        return found

    # Membership -------------------------------------------------------------------------------------------------------

    async def _join(self) -> Membership:
        request = JoinRequest(
            group=self._group.name,
            topics=tuple(each.name for each in self._options.topics),
            member_id=self._member_id,
            session_ms=self._member_options.session_ms,
            kind=GroupKind.CURSOR,
            **asdict(self._member_options.group_settings()),
        )
        async with self._changing:
            found = await self._group.join(request)
            await self._take_over(found)
            await self._refresh()
        return found

    async def _heartbeat(self, member: Membership) -> Membership:
        async with self._changing:
            found = await self._group.heartbeat(member.member_id, member.generation)
            await self._take_over(found)
            if found.revoked:
                # The revoked partitions are given up: another member gets them with this heartbeat.
                found = await self._group.heartbeat(found.member_id, found.generation)
                await self._take_over(found)
            await self._refresh()
        return found

    async def _leave(self) -> None:
        await self._group.leave(self._member_id)

    async def _take_over(self, found: Membership) -> None:
        """Give up the partitions that are not assigned any more, and read the new ones from their positions."""
        assigned = {(topic, each) for topic, some in found.assigned.items() for each in some}
        moved: dict[Place, ReadProgress | None] = dict.fromkeys(set(self.progress) - assigned)
        new = assigned - set(self.progress)
        for topic in {topic for topic, _ in new}:
            positions = await self._group.positions(topic)
            moved |= {(topic, n): _progress(each) for n, each in positions.items() if (topic, n) in new}
        await self._apply(moved)

    async def _apply(self, moved: Mapping[Place, ReadProgress | None]) -> None:
        if not moved:
            return
        await self._moved(moved)
        for place, progress in moved.items():
            if progress is None:
                self.progress.pop(place, None)
            else:
                self.progress[place] = progress


def _progress(position: GroupPosition) -> ReadProgress:
    return ReadProgress(position.offset, position.epoch)
