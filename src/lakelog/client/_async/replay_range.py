"""The range of a replay, and its position on the server if it has a name.

The position is that of a cursor group whose only member is the running replay. Live groups are not involved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from lakelog.client import processes
from lakelog.client._async.group import AsyncGroup
from lakelog.client._async.lake import AsyncLake
from lakelog.client.replaying.request import ReplayRange, ReplayRequest
from lakelog.client.values import ReplayedPartition
from lakelog.errors import Conflict, GroupNotFound, LakelogError, NotOwner, StaleGeneration, UnknownMember
from lakelog.model.group import GroupKind
from lakelog.model.lake import PlanOptions
from lakelog.model.membership import JoinRequest, Membership
from lakelog.model.progress import GroupDescription

SESSION_MS = 60_000
"""A process that does not report for this time loses its place, and stops."""

_REPLACED = (NotOwner, StaleGeneration, UnknownMember)
_TICK = timedelta(microseconds=1)


class AsyncReplayPosition:
    """The position of a replay. With a name, it is stored, and one process at a time holds it. Otherwise, it is not.

    The group begins at `since`. The time at which it was created ends the range, so that every later call with the name
    finds the same range.

    Args:
        group: The group `request.group`, which has the position if the replay has a name.
        lake: Finds the offsets of the range.
        request: The messages to replay.
        session_ms: A process that does not report for this time loses its place.
    """

    def __init__(
        self, group: AsyncGroup, lake: AsyncLake, request: ReplayRequest, session_ms: int = SESSION_MS
    ) -> None:
        self._group = group
        self._lake = lake
        self._request = request
        self._session_ms = session_ms
        self._member_id = processes.unique_name()
        self._member: Membership | None = None
        self._epochs: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    async def look(self) -> ReplayRange:
        """Return the range with the stored position, and change nothing."""
        if self._request.name is not None:
            with contextlib.suppress(GroupNotFound):
                return await self._range(await self._description())
        return await self._planned(self._request)

    async def take(self) -> ReplayRange:
        """Become the only process that runs this replay. Return the range with the stored position."""
        if self._request.name is None:
            return await self._planned(self._request)
        since = self._request.since
        with contextlib.suppress(GroupNotFound):
            await self._description()
        join = JoinRequest(
            group=self._group.name,
            topics=(self._request.topic,),
            member_id=self._member_id,
            session_ms=self._session_ms,
            kind=GroupKind.CURSOR,
            start_from="earliest" if since is None else since.isoformat(),
            client="replay",
            replaces=True,
        )
        self._member = await self._group.join(join)
        return await self._range(await self._description())

    async def commit(self, positions: Mapping[int, int]) -> None:
        """Store positions that have advanced. Raise `Conflict` if another process runs this replay now."""
        if self._member is None:
            return
        by_epoch: dict[int, dict[int, int]] = {}
        for partition, offset in positions.items():
            if offset > self._committed[partition]:
                by_epoch.setdefault(self._epochs[partition], {})[partition] = offset
        for epoch, offsets in by_epoch.items():
            try:
                await self._group.commit(
                    self._request.topic,
                    offsets,
                    member_id=self._member_id,
                    generation=self._member.generation,
                    epoch=epoch,
                )
            except _REPLACED as error:
                raise self._replaced() from error
            self._committed |= offsets

    async def keep(self) -> None:
        """Report that this process runs. Raise `Conflict` if another process runs this replay now."""
        if self._member is None:
            return
        try:
            self._member = await self._group.heartbeat(self._member_id, self._member.generation)
        except _REPLACED as error:
            raise self._replaced() from error

    async def release(self) -> None:
        """Leave the group. The position stays. A failure is logged: the member then times out."""
        try:
            if self._member is not None:
                await self._group.leave(self._member_id)
        except LakelogError as error:
            processes.log.info("%s: Could not leave the group: %s", self._group.name, error.detail)

    async def _description(self) -> GroupDescription:
        found, topic = await self._group.describe(), self._request.topic
        others = sorted({each.topic for each in found.progress} - {topic})
        if others:
            raise Conflict(
                f"Replay '{self._request.name}' is one of topic '{others[0]}', not of '{topic}'. Use another name.",
                group=self._group.name,
                topic=topic,
            )
        return found

    async def _range(self, group: GroupDescription) -> ReplayRange:
        # A message that was published before the replay may have the same time.
        begun = group.created_at + _TICK
        until = begun if self._request.until is None else min(begun, self._request.until)
        # The stored position replaces `since`, which may be a later time in a call that continues, such as an hour ago.
        found = await self._planned(replace(self._request, since=None, until=until))
        starts = {} if self._request.since is None else await self._starts(self._request)
        positions = await self._group.positions(self._request.topic)
        partitions = []
        for each in found.partitions:
            start = min(starts.get(each.partition, each.start), each.end)
            stored = positions.get(each.partition)
            position = start if stored is None else max(each.start, min(stored.offset, each.end))
            partitions.append(each._replace(start=min(start, position), position=position))
            self._epochs[each.partition] = 0 if stored is None else stored.epoch
            self._committed[each.partition] = 0 if stored is None else stored.offset
        return replace(found, partitions=partitions, begun_at=group.created_at)

    async def _starts(self, request: ReplayRequest) -> Mapping[int, int]:
        found = await self._planned(replace(request, until=None))
        return {each.partition: each.start for each in found.partitions}

    async def _planned(self, request: ReplayRequest) -> ReplayRange:
        plan = await self._lake.plan(request.topic, PlanOptions(since=request.since, until=request.until))
        partitions = [ReplayedPartition(each.partition, each.start, each.start, each.end) for each in plan.partitions]
        return ReplayRange(incarnation=plan.incarnation, partitions=partitions)

    def _replaced(self) -> Conflict:
        return Conflict(
            f"Another process runs replay '{self._request.name}' of topic '{self._request.topic}' now, or this one did "
            f"not report for {self._session_ms // 1000} seconds. Call replay again to continue.",
            group=self._group.name,
            topic=self._request.topic,
        )
