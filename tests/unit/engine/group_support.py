"""Groups over stores in memory, with journals that decide at once and members that a test sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from lakelog.coordinator.leasing.codec import decode_state, encode_state
from lakelog.coordinator.leasing.operations import (
    AcquireMessages,
    Candidates,
    Granted,
    LeasingConfig,
    Operation,
    Reply,
    SeekPosition,
    StepContext,
)
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.coordinator.leasing.step import step
from lakelog.engine.changes import Changes
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.groups import Groups
from lakelog.engine.groups.members import Members
from lakelog.engine.groups.progress import ProgressReader
from lakelog.engine.leasing.consuming import MembersInfo
from lakelog.engine.leasing.journal_reader import GroupPartitions
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics
from lakelog.errors import LakelogError, UnknownMember
from lakelog.model.group import Exponential, Group, GroupKind, GroupTopic, NewGroupSettings
from lakelog.model.membership import Membership
from lakelog.model.progress import MemberInfo
from lakelog.model.seek import CommitRequest, PartitionOffset
from lakelog.model.times import to_time
from lakelog.model.topic import Scope, Topic
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Append, PartitionStore
from tests.unit.engine.support import Clock, packed


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


class FakeJournals:
    """Every operation is a step of its own. `fails` names partitions that cannot be reached."""

    def __init__(self, cells: dict[int, MemoryStore], clock: Clock) -> None:
        self._cells = cells
        self._clock = clock
        self._states: dict[tuple[int, int], DeliveryState] = {}
        self.fails: dict[int, LakelogError] = {}
        self.ran: list[tuple[int, Operation]] = []

    def altered(self, group: Group) -> None:
        pass

    async def run(
        self, group: Group, group_topic: GroupTopic, topic: Topic, partition: int, operation: Operation
    ) -> Reply:
        if partition in self.fails:
            raise self.fails[partition]
        self.ran.append((partition, operation))
        (head,) = await self._cells[topic.cells[partition]].heads_read([topic.pid(partition)])
        state = self._state(group, topic, group_topic, partition)
        keys = [1 + offset for offset in range(state.frontier, head.next_offset)]
        context = StepContext(
            now_ms=ms(self._clock.now),
            chance=0.0,
            config=LeasingConfig(
                order=group.settings.order, retries=Exponential(jitter=0), window=group.settings.window
            ),
            candidates=Candidates(start=state.frontier, keys=keys),
            log_start=head.log_start,
            high_watermark=head.next_offset,
        )
        operations: list[Operation] = [operation]
        target = group_topic.target(partition)
        if state.epoch < group_topic.epoch and target is not None:
            operations.insert(0, SeekPosition(epoch=group_topic.epoch, offset=target))
        reply = step(state, operations, context).replies[-1]
        if isinstance(reply, LakelogError):
            raise reply
        return reply

    async def states(
        self, group: Group, topic: Topic, group_topic: GroupTopic, partitions: Sequence[int]
    ) -> list[DeliveryState]:
        found = (self._state(group, topic, group_topic, partition) for partition in partitions)
        return [decode_state(encode_state(state)) for state in found]

    async def states_of(self, asked: Sequence[GroupPartitions]) -> list[list[DeliveryState]]:
        return [await self.states(each.group, each.topic, each.group_topic, each.partitions) for each in asked]

    def _state(self, group: Group, topic: Topic, group_topic: GroupTopic, partition: int) -> DeliveryState:
        place = (group.group_id, topic.pid(partition))
        return self._states.setdefault(place, begin(group_topic.start(partition)))


class FakeMembers:
    def __init__(self) -> None:
        self.assigned: dict[str, dict[str, list[int]]] = {}
        self.generation = 1

    async def describe(self, group: Group) -> MembersInfo:
        members = [
            MemberInfo(
                member_id=name, client_host="", topics=tuple(has), assigned=has, session_ms=30_000, seen_at=to_time(0)
            )
            for name, has in self.assigned.items()
        ]
        return MembersInfo(
            state="stable",
            generation=self.generation,
            members=tuple(members),
            idle=(),
            rebalances=0,
            last_rebalance_at=None,
            rebalancing_ms=0,
        )

    async def infos(self, groups: Sequence[Group], silent: Collection[int] = ()) -> dict[int, MembersInfo]:
        return {group.group_id: await self.describe(group) for group in groups}

    async def membership(self, group: Group, member_id: str) -> Membership:
        if member_id not in self.assigned:
            raise UnknownMember()
        return Membership(
            member_id=member_id, generation=self.generation, assigned=self.assigned[member_id], heartbeat_ms=10_000
        )


@dataclass
class World:
    """One engine's groups, two cells, a clock set by hand."""

    clock: Clock = field(default_factory=Clock)
    changed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = MemoryCatalog(self.clock)
        self.cells = {0: MemoryStore(self.clock), 1: MemoryStore(self.clock)}
        self.topics = Topics(self.catalog, dict(self.cells))
        self.journals = FakeJournals(self.cells, self.clock)
        self.members = FakeMembers()
        self.groups = self.server()
        self.group_directory = self.groups._directory

    def server(self) -> Groups:
        """Return the groups of one more server over the same data."""
        cells: dict[int, PartitionStore] = dict(self.cells)
        changes = Changes(cells)
        changes.add_group_cache(lambda group_id: self.changed.append(group_id or 0))
        progress = ProgressReader(Extents(cells), cast(Journals, self.journals))
        directory = GroupDirectory(self.catalog, progress.extents, self.topics, progress.journals, changes)
        return Groups(self.catalog, directory, self.topics, cast(Members, self.members), progress)

    async def scope(self) -> Scope:
        return await self.catalog.scope_create("shop", "test")

    async def topic(self, name: str = "orders", partitions: int = 2) -> tuple[Scope, Topic]:
        scope = await self.scope()
        return scope, await self.topics.create(scope, name, partitions)

    async def publish(self, topic: Topic, partition: int, *values: str) -> None:
        append = Append(pid=topic.pid(partition), epoch=topic.epoch, payloads=[packed(*values)])
        await self.cells[topic.cells[partition]].append([append])

    async def joined(
        self, scope: Scope, topic: Topic, name: str = "billing", kind: GroupKind | None = None, **settings: object
    ) -> tuple[Group, GroupTopic]:
        wanted = NewGroupSettings(**settings)  # type: ignore[arg-type]
        group = await self.group_directory.resolve(scope, name, wanted, kind=kind, create=True)
        return group, await self.group_directory.group_topic(group, topic, wanted)

    async def take(
        self, group: Group, group_topic: GroupTopic, topic: Topic, partition: int, count: int = 1, owner: str = "ann"
    ) -> Granted:
        ask = AcquireMessages(owner=owner, max_messages=count, lease_ms=30_000)
        reply = await self.journals.run(group, group_topic, topic, partition, ask)
        assert isinstance(reply, Granted), reply
        return reply


def commit_of(group: str, topic: str, positions: Mapping[int, int], **fields: Any) -> CommitRequest:
    """Return the request to commit offsets by partition."""
    given = tuple(PartitionOffset(partition=partition, offset=offset) for partition, offset in positions.items())
    return CommitRequest(group=group, topic=topic, positions=given, **fields)
