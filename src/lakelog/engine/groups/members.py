"""Members of groups: join, heartbeat, leave, and the partitions that each member reads.

`lakelog.coordinator.membership` decides; a `GroupMembers` per group reads and writes the decisions. There is no
background agent: every call evicts members whose session expired, and a timer does so while callers of this process are
active.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from lakelog.coordinator.membership import (
    AcknowledgeGeneration,
    HostChanged,
    JoinGroup,
    LeaveGroup,
    Member,
    MembershipState,
    Operation,
    TopicsChanged,
    decode,
    is_expired,
)
from lakelog.engine.changes import Changes
from lakelog.engine.groups.activity import GroupActivity, MembersChange
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.group_members import HEARTBEAT_WITHIN_SECONDS, GroupMembers
from lakelog.engine.groups.heartbeats import Heartbeats
from lakelog.engine.leasing.consuming import MembersInfo
from lakelog.engine.log.topics import Topics
from lakelog.errors import Conflict, GroupNotFound, InvalidRequest, TopicNotFound
from lakelog.model.group import DEFAULT_HEARTBEAT_MS, MAX_OWNER_BYTES, MAX_SESSION_MS, MIN_SESSION_MS, Group
from lakelog.model.limits import MAX_JOINED_TOPICS
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest, Membership
from lakelog.model.progress import MemberInfo
from lakelog.model.times import to_time
from lakelog.model.topic import Scope
from lakelog.storage.groups import MembersRead
from lakelog.storage.store import PartitionStore

MAX_MEMBERS = 1000


class Members:
    """The members of all groups. `activity` receives the members that joined and left."""

    def __init__(
        self,
        directory: GroupDirectory,
        topics: Topics,
        cells: dict[int, PartitionStore],
        changes: Changes,
        activity: GroupActivity | None = None,
    ) -> None:
        self._activity = activity
        self._directory = directory
        self._topics = topics
        self._cells = cells
        self._changes = changes
        self._heartbeats = {cell: Heartbeats(store.groups) for cell, store in cells.items()}
        self._by_group: dict[int, GroupMembers] = {}

    def drop(self, cell: int) -> None:
        for group_members in self._by_group.values():
            if group_members.group.cell == cell:
                group_members.drop()

    async def join(self, scope: Scope, request: JoinRequest, host: str = "") -> Membership:
        """Join a group, which is created if it does not exist and reads these topics from now on.

        Args:
            scope: The environment of the group.
            request: The member, its topics and the settings of the group.
            host: The address of the member's machine; shown with the kind of its program.
        """
        if request.client:
            host = _host(host, request.client)
        _check(request, host)
        topics = [await self._topics.find(scope, name) for name in dict.fromkeys(request.topics)]
        group = await self._directory.resolve(scope, request.group, request, kind=request.kind, create=True)
        skipped_at_start: dict[str, int] = {}
        for topic in topics:
            # Messages published between the join and the first consume belong to the group.
            _, skipped = await self._directory.begin(group, topic, request)
            if skipped is not None:
                skipped_at_start[topic.name] = skipped
        group_members = self._members_of(group)
        member_id = request.member_id or f"member-{secrets.token_hex(8)}"
        state = await group_members.current()
        if len(state.members) >= MAX_MEMBERS and member_id not in state.members and not request.replaces:
            raise Conflict(f"Group '{group.name}' has {MAX_MEMBERS} members, and cannot have more.", group=group.name)
        group_members.seen(member_id, HEARTBEAT_WITHIN_SECONDS)
        join = JoinGroup(
            member_id=member_id,
            topics=request.topics,
            session_ms=request.session_ms,
            host=host,
            replaces=request.replaces,
        )
        state = await group_members.change(await self._counted(group, state, request.topics), join)
        group_members.seen(member_id, HEARTBEAT_WITHIN_SECONDS)
        # The member is missing if it left at the same time.
        view = _view(state, state.members.get(member_id) or await group_members.member(member_id))
        return replace(view, skipped_at_start=skipped_at_start, settings=group.shown_settings())

    async def heartbeat(self, scope: Scope, request: HeartbeatRequest) -> Membership:
        """Record that the member is alive and knows that generation, and return the current membership."""
        group = await self._directory.resolve(scope, request.group, create=False)
        return await self._current(group, request.member_id, request.generation, request.client)

    async def leave(self, scope: Scope, request: LeaveRequest) -> None:
        """Leave the group; its partitions are free immediately.

        Leaving a group without being a member is not an error.
        """
        try:
            group = await self._directory.resolve(scope, request.group, create=False)
        except GroupNotFound:
            return
        await self._members_of(group).change(LeaveGroup(member_id=request.member_id))

    async def describe(self, group: Group) -> MembersInfo:
        """Return the membership that the store has now."""
        group_members = self._members_of(group)
        state = await group_members.current(max_age=0)
        return MembersInfo(
            state=state.phase.value,
            generation=state.generation,
            members=tuple(_info(member, group_members.seen_ms(member)) for member in state.members.values()),
            idle=tuple(state.idle()),
            rebalances=state.rebalances,
            last_rebalance_at=to_time(state.last_rebalance_ms),
            rebalancing_ms=state.rebalancing_ms(group_members.now_ms()),
        )

    async def infos(self, groups: Sequence[Group], silent: Collection[int] = ()) -> dict[int, MembersInfo]:
        """Return the membership of many groups, by group id, with one read of each cell. The call evicts no member.

        Groups whose home is one of the `silent` cells are left out.
        """
        by_cell: dict[int, list[Group]] = {}
        for group in groups:
            if group.cell not in silent:
                by_cell.setdefault(group.cell, []).append(group)
        found: dict[int, MembersInfo] = {}
        for cell, mine in by_cell.items():
            reads = await self._cells[cell].groups.members_list([group.group_id for group in mine])
            for group, read in zip(mine, reads, strict=True):
                found[group.group_id] = self._info(group, read)
        return found

    def _info(self, group: Group, read: MembersRead) -> MembersInfo:
        """Return the membership with the members whose sessions have not expired."""
        state = decode(read.body)
        heartbeats = self._heartbeats[group.cell]
        seen_ms = {**read.seen_ms, **dict.fromkeys(heartbeats.unwritten(group.group_id), read.clock_ms)}
        members = tuple(
            _info(member, max(member.joined_ms, seen_ms.get(member.member_id, 0)))
            for member in state.members.values()
            if not heartbeats.is_trusted or not is_expired(member, seen_ms, read.clock_ms)
        )
        return MembersInfo(
            state=state.phase.value,
            generation=state.generation,
            members=members,
            idle=tuple(state.idle()),
            rebalances=state.rebalances,
            last_rebalance_at=to_time(state.last_rebalance_ms),
            rebalancing_ms=state.rebalancing_ms(read.clock_ms),
        )

    async def membership(self, group: Group, member_id: str, *, at_least: int | None = None) -> Membership:
        """Return the member's assignment, which may be cached.

        Args:
            group: The group.
            member_id: The id of the member.
            at_least: A generation that the member knows. An older membership is read again.
        """
        if at_least is not None and self._members_of(group).state.generation < at_least:
            await self._members_of(group).current(max_age=0)
        return await self._current(group, member_id, None)

    def versions(self, groups: Iterable[Group]) -> dict[int, int]:
        """Return the versions of the cached memberships, by group id."""
        known = ((group.group_id, self._by_group.get(group.group_id)) for group in groups)
        return {group_id: each.version for group_id, each in known if each is not None and each.version}

    def confirm(self, group_id: int, version: int, at: float) -> None:
        """Trust the cached membership for longer, because it still had that version at that time of the loop."""
        if group_id in self._by_group:
            self._by_group[group_id].confirm(version, at)

    def seen(self, group: Group, member_id: str) -> None:
        """Record that the member is alive, because it made a call."""
        self._members_of(group).seen(member_id)

    async def close(self) -> None:
        """Finish running operations, and write the heartbeats."""
        await asyncio.gather(*(group_members.close() for group_members in list(self._by_group.values())))
        await self.write_heartbeats()

    async def write_heartbeats(self) -> None:
        """Write the heartbeats that this process has collected. They count from now on, not from a later write."""
        await asyncio.gather(*(heartbeats.flush() for heartbeats in self._heartbeats.values()))

    async def _current(
        self, group: Group, member_id: str, generation: int | None, client: str | None = None
    ) -> Membership:
        group_members = self._members_of(group)
        if generation is not None:
            # Before reading: a member that is late, but makes a call, must not be evicted by it.
            group_members.seen(member_id, HEARTBEAT_WITHIN_SECONDS)
        member = await group_members.member(member_id)
        state = group_members.state
        operations: list[Operation] = []
        if generation is not None:
            group_members.seen(member_id, HEARTBEAT_WITHIN_SECONDS)
            if member.revoked and generation >= member.fence:
                operations.append(AcknowledgeGeneration(member_id=member_id, generation=generation))
        host = member.host if client is None else _host(member.host.partition("(")[0], client)
        if host != member.host:
            _check_label("A member's host", host)
            operations.append(HostChanged(member_id=member_id, host=host))
        counted = await self._counted(group, state, member.topics)
        if any(state.counts.get(topic) != count for topic, count in counted.counts.items()):
            operations.append(counted)
        if operations:
            await group_members.change(*operations)
            member = await group_members.member(member_id)
            state = group_members.state
        return _view(state, member)

    async def _counted(self, group: Group, state: MembershipState, names: Iterable[str]) -> TopicsChanged:
        counts: dict[str, int] = {}
        for name in dict.fromkeys(names):
            try:
                topic = await self._topics.find(group.scope, name)
                if topic.partitions != state.counts.get(name, topic.partitions):
                    # One of the two is outdated: an old cache must not undo what another server has seen.
                    topic = await self._topics.refresh(group.scope, name)
                counts[name] = topic.partitions
            except TopicNotFound:
                counts[name] = 0
        return TopicsChanged(counts=counts)

    def _members_of(self, group: Group) -> GroupMembers:
        group_members = self._by_group.get(group.group_id)
        if group_members is None:
            store, heartbeats = self._cells[group.cell].groups, self._heartbeats[group.cell]
            group_members = GroupMembers(group, store, heartbeats, self._changes, self._tell, self._forget)
            self._by_group[group.group_id] = group_members
        group_members.group = group
        group_members.care()
        return group_members

    def _tell(self, group: Group, change: MembersChange | None) -> None:
        self._changes.group_changed(group.group_id)
        if self._activity is not None and change is not None:
            self._activity.members_changed(group, change)

    def _forget(self, group_members: GroupMembers) -> None:
        self._by_group.pop(group_members.group.group_id, None)


def _check(request: JoinRequest, host: str) -> None:
    if request.member_id is not None:
        _check_label("A member's id", request.member_id)
        if not request.member_id:
            raise InvalidRequest("The member id is empty. Omit it, and the server creates one.")
    _check_label("A member's host", host)
    if not 1 <= len(request.topics) <= MAX_JOINED_TOPICS:
        raise InvalidRequest(f"A member reads 1 to {MAX_JOINED_TOPICS} topics.")
    if not MIN_SESSION_MS <= request.session_ms <= MAX_SESSION_MS:
        raise InvalidRequest(
            f"The session timeout must be from {MIN_SESSION_MS} to {MAX_SESSION_MS} ms, not {request.session_ms}."
        )


def _host(address: str, client: str) -> str:
    """Return the address of a member with the program that it runs."""
    return f"{address.strip()} ({client})".strip()


def _check_label(what: str, text: str) -> None:
    """Raise an error for a text that does not fit into a log line or a table on a terminal."""
    if not text.isprintable() or len(text.encode()) > MAX_OWNER_BYTES:
        raise InvalidRequest(f"{what} must be at most {MAX_OWNER_BYTES} bytes of text without control characters.")


def _view(state: MembershipState, member: Member) -> Membership:
    return Membership(
        member_id=member.member_id,
        generation=state.generation,
        assigned=member.assigned,
        revoked=member.revoked,
        heartbeat_ms=min(DEFAULT_HEARTBEAT_MS, member.session_ms // 3),
    )


def _info(member: Member, seen_ms: int) -> MemberInfo:
    return MemberInfo(
        member_id=member.member_id,
        client_host=member.host,
        topics=tuple(member.topics),
        assigned=member.assigned,
        session_ms=member.session_ms,
        seen_at=to_time(seen_ms),
    )
