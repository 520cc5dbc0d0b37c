"""The members of one group, as one process knows them. All changes of members go through this module.

Operations that arrive during a write form the next one, so that many members that join together cause one rebalance. A
write succeeds only if it follows the version that was read; otherwise the newer version is read and everything is
decided again. The membership is stored in the group's home cell, so a process that dies loses none of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from lakelog import failpoints
from lakelog.coordinator import membership
from lakelog.engine.changes import Changes
from lakelog.engine.coalescing import CoalescingPump
from lakelog.engine.groups.activity import MembersChange
from lakelog.engine.groups.heartbeats import GRACE_SECONDS, Heartbeats
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable, UnknownMember
from lakelog.model.group import Group
from lakelog.storage.groups import GroupStore

CARE_SECONDS = 60.0
"""How long this process checks sessions after the last call; longer than any poll waits."""
HEARTBEAT_WITHIN_SECONDS = 0.1
SEEN_WITHIN_SECONDS = 0.5
_TRIES = 50
_LOOK_AGAIN_SECONDS = 0.02

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    """The operations of one caller."""

    operations: Sequence[membership.Operation]
    done: asyncio.Future[membership.MembershipState]


class GroupMembers:
    """Create the members.

    `changed` is called after each change, with the change if this process wrote it, else with None.

    `ended` is called when there was no call for a while.
    """

    def __init__(
        self,
        group: Group,
        store: GroupStore,
        heartbeats: Heartbeats,
        changes: Changes,
        changed: Callable[[Group, MembersChange | None], None],
        ended: Callable[[GroupMembers], None],
    ) -> None:
        self.group = group
        self.state = membership.MembershipState()
        self._store = store
        self._heartbeats = heartbeats
        self._changes = changes
        self._changed = changed
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._version = 0
        self._drops = self._known_drops = 0
        self._seen_ms: dict[str, int] = {}
        self._clock_ms = 0
        self._read_at = self._confirmed_at = -math.inf
        self._reading = asyncio.Lock()
        self._waiting: list[_Call] = []
        self._writes = CoalescingPump(self._next_write)
        self._cared_at = self._loop.time()
        self._over_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._judging: asyncio.Task[None] | None = None
        self._is_closed = False
        self._stack = ExitStack()
        self._news = self._stack.enter_context(changes.waiters.waiting(-group.group_id))
        self._arm()

    def drop(self) -> None:
        """Drop the cached membership, because the data of its cell was replaced."""
        self._drops += 1
        self._news.set()

    @property
    def version(self) -> int:
        """The version of the cached membership; 0 if there are no members or they were not read."""
        return self._version

    def confirm(self, version: int, at: float) -> None:
        """Trust the cached membership for longer, because it still had that version at that time of the loop."""
        if version == self._version:
            self._confirmed_at = max(self._confirmed_at, at)

    async def current(self, max_age: float | None = None) -> membership.MembershipState:
        """Return the membership without members whose session has expired.

        It is at most `max_age` seconds old. By default, it is cached as long as announcements are reliable.
        """
        if max_age is None:
            max_age = self._changes.cache_seconds
        if not self._is_fresh(max_age):
            asked_at = self._loop.time()
            async with self._reading:
                # A caller that waited for a read that began after its own call needs no further read.
                if self._read_at < asked_at and not self._is_fresh(max_age):
                    await self._read()
        if self._loop.time() >= self._over_at:
            await self.change()
        return self.state

    async def member(self, member_id: str) -> membership.Member:
        state = await self.current()
        if member_id not in state.members:
            # A refusal from the cache is not reliable: the member may have joined through another server.
            state = await self.current(max_age=0)
        if member_id not in state.members:
            raise UnknownMember(
                f"Group '{self.group.name}' has no member '{member_id}', or no longer has it. Join again.",
                group=self.group.name,
                member_id=member_id,
            )
        return state.members[member_id]

    async def change(self, *operations: membership.Operation) -> membership.MembershipState:
        """Apply operations, evict members whose session has expired, and return the membership."""
        call = _Call(operations, self._loop.create_future())
        self._waiting.append(call)
        self._writes.wake()
        return await call.done

    def care(self) -> None:
        """Keep checking sessions, because a caller of this process depends on which members are alive."""
        self._cared_at = self._loop.time()

    def seen(self, member_id: str, within_seconds: float = SEEN_WITHIN_SECONDS) -> None:
        """Record that the member is alive, unless it is known not to exist."""
        member = self.state.members.get(member_id)
        if member is not None:
            within_seconds = min(within_seconds, member.session_ms / 16_000)
        elif self._version:
            return
        self._heartbeats.note(self.group.group_id, member_id, within_seconds)

    def seen_ms(self, member: membership.Member) -> int:
        """Return when the member was last seen, if this process knows."""
        if member.member_id in self._heartbeats.unwritten(self.group.group_id):
            return self._clock_ms
        return max(member.joined_ms, self._seen_ms.get(member.member_id, 0))

    def now_ms(self) -> int:
        """The approximate time of the database."""
        return self._clock_ms + round(1000 * (self._loop.time() - self._read_at))

    async def close(self) -> None:
        """Finish running operations."""
        self._end()
        if self._judging is not None:
            await asyncio.gather(self._judging, return_exceptions=True)
        await self._writes.drain()

    # Reading --------------------------------------------------------------------------------------------------------

    def _is_fresh(self, max_age: float) -> bool:
        return not self._news.is_set() and self._loop.time() - max(self._read_at, self._confirmed_at) < max_age

    async def _read(self) -> None:
        """Read the membership. Call it only under `_reading`, so that an older response never replaces a newer one."""
        self._news.clear()
        began, drops = self._loop.time(), self._drops
        try:
            read = await self._store.members_read(self.group.group_id)
        except LakelogError:
            self._heartbeats.failed()
            raise
        if read.version != self._version or drops != self._known_drops:
            self.state, self._known_drops = membership.decode(read.body), drops
        self._version, self._seen_ms, self._clock_ms = read.version, dict(read.seen_ms), read.clock_ms
        self._read_at = began
        self._remind()
        self._foresee()

    def _remind(self) -> None:
        """Restart the sessions of members that joined long ago and were never seen: a crash lost their heartbeats."""
        for member in self.state.members.values():
            if member.member_id not in self._seen_ms and member.expires_ms(0) < self._clock_ms:
                self._heartbeats.note(self.group.group_id, member.member_id, HEARTBEAT_WITHIN_SECONDS)

    def _sightings(self) -> dict[str, int]:
        """Return when members were seen. A heartbeat that this process has not written yet counts as now."""
        unwritten = self._heartbeats.unwritten(self.group.group_id)
        return self._seen_ms | dict.fromkeys(unwritten, self._clock_ms)

    # Writing --------------------------------------------------------------------------------------------------------

    def _next_write(self) -> Coroutine[object, object, None] | None:
        waiting, self._waiting = self._waiting, []
        # A caller that gave up before anything was written must not join afterwards.
        calls = [call for call in waiting if not call.done.cancelled()]
        return self._settle(calls) if calls else None

    async def _settle(self, calls: list[_Call]) -> None:
        try:
            async with self._reading:
                state = await self._commit([operation for call in calls for operation in call.operations])
        except Exception as error:
            known = (
                error
                if isinstance(error, LakelogError)
                else OutcomeUnknown(f"The change of members failed: {error!r}.")
            )
            for call in calls:
                if not call.done.done():
                    call.done.set_exception(type(known)(known.detail, **known.subject))
        else:
            for call in calls:
                if not call.done.done():
                    call.done.set_result(state)

    async def _commit(self, operations: Sequence[membership.Operation]) -> membership.MembershipState:
        rules = membership.AssignmentRules(kind=self.group.kind, assignor=self.group.settings.assignor)
        lost: OutcomeUnknown | None = None
        for _ in range(_TRIES):
            try:
                await self._read()
            except LakelogError:
                if lost is not None:
                    raise lost from None
                raise
            evict = [membership.EvictMembers(seen_ms=self._sightings())] if self._heartbeats.is_trusted else []
            state = membership.step(self.state, [*evict, *operations], rules, self._clock_ms)
            if state is self.state:
                if lost is not None:
                    self._tell()
                return state
            try:
                if await self._put(state):
                    await self._wrote(state, operations)
                    return state
            except OutcomeUnknown as error:
                # The next read shows whether it was written; if not, it is decided again.
                lost = error
        raise Unavailable(f"The members of group '{self.group.name}' changed too often during the call; retry.")

    async def _put(self, state: membership.MembershipState) -> bool:
        written = await self._store.members_write(self.group.group_id, self._version + 1, membership.encode(state))
        if failpoints.armed:
            try:
                failpoints.hit("members.after_write")
            except Unavailable as error:
                # After the write, `Unavailable` would claim that nothing was written.
                raise OutcomeUnknown(error.detail) from error
        return written

    async def _wrote(self, state: membership.MembershipState, operations: Sequence[membership.Operation]) -> None:
        gone = self.state.members.keys() - state.members.keys()
        change = _change(self.state, state, operations)
        self.state = state
        self._version += 1
        self._foresee()
        self._tell(change)
        if gone:
            self._heartbeats.forget(self.group.group_id, gone)
            try:
                await self._store.heartbeats_drop(self.group.group_id, gone)
            except LakelogError as error:
                _log.debug("Heartbeats of members that left could not be removed: %s", error)

    def _tell(self, change: MembersChange | None = None) -> None:
        had_news = self._news.is_set()
        self._changed(self.group, change)
        if not had_news:
            # The process that made the change need not be notified.
            self._news.clear()

    # Watching -------------------------------------------------------------------------------------------------------

    def _foresee(self) -> None:
        """Return when the next session expires, unless its member is seen."""
        seen = self._sightings()
        # The heartbeat of a new member may not be written yet; it is checked again when its session would expire.
        over = [each.expires_ms(seen.get(each.member_id, 0)) for each in self.state.members.values()]
        self._over_at = self._read_at + (min(over) + 1 - self._clock_ms) / 1000 if over else math.inf
        if not self._heartbeats.is_trusted:
            self._over_at = max(self._over_at, self._loop.time() + GRACE_SECONDS)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_closed:
            due = min(self._over_at, self._cared_at + CARE_SECONDS)
            self._timer = self._loop.call_at(max(due, self._loop.time() + _LOOK_AGAIN_SECONDS), self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._cared_at + CARE_SECONDS and self._writes.is_idle:
            self._end()
        elif now >= self._over_at:
            # Retry later if this fails; otherwise the membership that was read says when.
            self._over_at = now + GRACE_SECONDS
            self._judging = self._loop.create_task(self._judge())
        self._arm()

    async def _judge(self) -> None:
        try:
            await self.change()
        except LakelogError as error:
            _log.debug("Sessions of group %s could not be checked: %s", self.group.name, error)

    def _end(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._stack.close()
        self._ended(self)


def _change(
    before: membership.MembershipState, after: membership.MembershipState, operations: Sequence[membership.Operation]
) -> MembersChange:
    gone = before.members.keys() - after.members.keys()
    left = {each.member_id for each in operations if isinstance(each, membership.LeaveGroup)}
    if any(isinstance(each, membership.JoinGroup) and each.replaces for each in operations):
        left = gone
    return MembersChange(
        joined=len(after.members.keys() - before.members.keys()),
        left=len(gone & left),
        expired=sorted(gone - left),
        total=len(after.members),
    )
