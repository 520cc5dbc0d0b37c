"""A member of a group: joins, sends heartbeats, joins again after a timeout, and leaves. For workers and for Spark.

It makes no calls itself: the functions that it receives decide how often a call is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from lakelog.client import processes
from lakelog.client.stop_signal import AsyncStopSignal
from lakelog.errors import Closed, LakelogError, UnknownMember
from lakelog.model.membership import Membership

Join = Callable[[], Awaitable[Membership]]
Heartbeat = Callable[[Membership], Awaitable[Membership]]
Leave = Callable[[], Awaitable[None]]

log = processes.log


class AsyncGroupMember:
    """Keeps one membership alive until `stop` or `leave`.

    Args:
        name: The group, or the subscription, for log lines.
        join: Joins the group, also after a timeout.
        heartbeat: Sends a heartbeat of the membership.
        leave: Leaves the group.
    """

    def __init__(self, name: str, join: Join, heartbeat: Heartbeat, leave: Leave) -> None:
        self.membership: Membership | None = None
        self._name = name
        self._join = join
        self._heartbeat = heartbeat
        self._leave = leave
        self._stopped = AsyncStopSignal()

    async def join(self) -> None:
        """Join the group. Raise an error if the server refuses."""
        self.membership = await self._join()

    async def heartbeat(self) -> None:
        """Send a heartbeat. Join again if the group has removed the member after a timeout."""
        member = self.membership
        if member is None:
            return
        try:
            self.membership = await self._heartbeat(member)
        except UnknownMember:
            if self._stopped.is_set():
                return
            log.warning("%s: Removed from the group after a timeout. Joining again.", self._name)
            await self.join()

    def advance(self, generation: int | None) -> None:
        """Record the generation of a reply, if it is newer."""
        member = self.membership
        if member is not None and generation is not None and generation > member.generation:
            self.membership = msgspec.structs.replace(member, generation=generation)

    async def keep_alive(self, every_seconds: float | None = None) -> None:
        """Send heartbeats until `stop`. A failed heartbeat is repeated after the next interval.

        Args:
            every_seconds: The interval. Default: the interval that the server gives.
        """
        while True:
            interval = every_seconds or (self.membership.heartbeat_ms / 1000 if self.membership else 1.0)
            if await self._stopped.wait(interval):
                return
            try:
                await self.heartbeat()
            except Closed:
                return
            except LakelogError as error:
                log.debug("%s: The heartbeat failed: %s", self._name, error.detail)

    def stop(self) -> None:
        """End `keep_alive`."""
        self._stopped.set()

    async def leave(self) -> None:
        """Stop the heartbeats and leave the group. A member that cannot leave is removed when its session times out."""
        self.stop()
        if self.membership is None:
            return
        try:
            await self._leave()
        except LakelogError as error:
            log.info("%s: Could not leave the group; the member will time out: %s", self._name, error.detail)
