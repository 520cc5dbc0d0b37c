"""The progress of groups per partition, and the figures of a topic.

The module changes nothing. `reasons` interprets the progress.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from lakelog.coordinator.leasing.applying import apply
from lakelog.coordinator.leasing.events import MessagesCut, PositionReset, pairs
from lakelog.coordinator.leasing.state import DeliveryState, Lease, begin
from lakelog.coordinator.leasing.summary import summarize
from lakelog.engine.groups.positions import gathered, heads_of, heads_of_all
from lakelog.engine.groups.reasons import GroupView, Held, Look, Status, is_to_be_read
from lakelog.engine.groups.silence import silent_cells
from lakelog.engine.groups.stuck import Times, explain, unresponsive, without_position
from lakelog.engine.leasing.consuming import MembersInfo
from lakelog.engine.leasing.journal_reader import GroupPartitions
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.log.damage import DamageTest
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import topic_info
from lakelog.errors import LakelogError
from lakelog.model.group import Group, GroupTopic
from lakelog.model.progress import GroupStats, LeaseInfo, PartitionProgress, TopicStats
from lakelog.model.times import to_ms, to_time
from lakelog.model.topic import Topic
from lakelog.model.topic_info import TopicInfo
from lakelog.storage.store import Head, ReadResult

Reader = tuple[Group, Sequence[tuple[Topic, GroupTopic]], MembersInfo]
"""A group, the topics that it reads, and its members."""
TOGETHER = 500
"""The number of partitions that are described before other calls are handled."""
_KEPT_TIMES = 10_000


def apply_seek(state: DeliveryState, group_topic: GroupTopic, partition: int) -> None:
    """Move a state to the position of the last seek, if the state was read before the seek was applied."""
    if state.epoch < group_topic.epoch and (target := group_topic.target(partition)) is not None:
        apply(state, PositionReset(group_topic.epoch, target), 0)


def _ends(topic: Topic, heads: Mapping[int, Head]) -> list[int]:
    return [heads[each].next_offset if each in heads else 0 for each in range(topic.partitions)]


class ProgressReader:
    """Reads states, heads and first batches; one per engine."""

    def __init__(self, extents: Extents, journals: Journals) -> None:
        self.extents = extents
        self.journals = journals
        self._cells = extents.cells
        self.damage = DamageTest(extents)
        self._times: OrderedDict[tuple[int, int], int] = OrderedDict()
        """Cached append times of messages, by partition id and offset. They never change."""

    def drop(self, cell: int) -> None:
        """Drop the cached times of all cells, because there are few."""
        self._times = OrderedDict()

    async def states(
        self, group: Group, topic: Topic, group_topic: GroupTopic
    ) -> tuple[list[DeliveryState], dict[int, Head]]:
        """Return the current states and the heads of all partitions, with seeks and retention applied."""
        (decided,) = await self._decided([(group, topic, group_topic)])
        return list(decided.by_partition.values()), decided.heads

    async def read(
        self,
        group: Group,
        group_topics: Sequence[tuple[Topic, GroupTopic]],
        members: MembersInfo,
        silent: Collection[int] = (),
    ) -> list[PartitionProgress]:
        """Return the group's progress in all partitions of these topics, and why it is stuck.

        Nothing is read from `silent` cells.

        The ages of the oldest unfinished messages take one read of each cell and topic.
        """
        (found,) = await self.read_all([(group, group_topics, members)], silent)
        return found

    async def read_all(self, readers: Sequence[Reader], silent: Collection[int] = ()) -> list[list[PartitionProgress]]:
        """Return the progress of several groups, each like `read`, with few more statements than for one."""
        decided = await self._decided(
            [(group, topic, group_topic) for group, topics, _ in readers for topic, group_topic in topics], silent
        )
        cells = {group.cell for group, _, _ in readers}
        now_ms = {cell: to_ms(await self._cells[cell].clock()) for cell in cells}
        found: list[list[PartitionProgress]] = []
        for group, topics, members in readers:
            own, decided = decided[: len(topics)], decided[len(topics) :]
            found.append(
                await self._read_group(group, [topic for topic, _ in topics], own, members, now_ms[group.cell])
            )
        return found

    async def _read_group(
        self, group: Group, topics: Sequence[Topic], decided: Sequence[_Decided], members: MembersInfo, now_ms: int
    ) -> list[PartitionProgress]:
        held = _held({topic.name: each.by_partition for topic, each in zip(topics, decided, strict=True)}, now_ms)
        view = GroupView(group=group, now_ms=now_ms, members=members.members, held=held)
        rebalanced_ms = None if members.last_rebalance_at is None else to_ms(members.last_rebalance_at)
        found: list[PartitionProgress] = []
        for topic, each in zip(topics, decided, strict=True):
            found += await self._read_topic(topic, each, view, rebalanced_ms)
        return found

    async def _read_topic(
        self, topic: Topic, decided: _Decided, view: GroupView, rebalanced_ms: int | None
    ) -> list[PartitionProgress]:
        ends = _ends(topic, decided.heads)
        states = decided.by_partition
        behind = {n: state.committed for n, state in states.items() if summarize(state).lag(ends[n])}
        oldest = await self._appended_ms(topic, behind)

        looks = {
            partition: Look(view=view, topic=topic.name, partition=partition, high_watermark=ends[partition])
            for partition in states
        }
        read_next = {
            partition: next_offsets(state, ends[partition])
            for partition, state in states.items()
            if is_to_be_read(summarize(state), looks[partition])
        }
        damage = await self.damage.find(topic, read_next)

        found: list[PartitionProgress] = []
        for partition in range(topic.partitions):
            if partition not in states:
                found.append(_unknown(view.group, topic, partition))
                continue
            state, look = states[partition], looks[partition]
            if partition in damage:
                look = replace(look, damage=damage[partition])
            head = decided.heads.get(partition)
            times = Times(
                oldest_ms=oldest.get(partition), rebalanced_ms=rebalanced_ms, cut=decided.cut.get(partition, 0)
            )
            one = _progress(state, look, times, log_start=head.log_start if head else 0)
            if one.committed != decided.committed[partition]:
                one = structs.replace(one, committed=decided.committed[partition])
            found.append(one)
            if partition % TOGETHER == TOGETHER - 1:
                # Other calls do not wait for the whole of a large topic.
                await asyncio.sleep(0)
        return found

    async def _decided(
        self, readers: Sequence[tuple[Group, Topic, GroupTopic]], silent: Collection[int] = ()
    ) -> list[_Decided]:
        """Return each group in all partitions of its topic, without those in cells that do not respond.

        The number of statements does not depend on the number of groups and topics.
        """
        asked = [
            GroupPartitions(
                group=group,
                topic=topic,
                group_topic=group_topic,
                partitions=[each for each, cell in enumerate(topic.cells) if cell not in silent],
            )
            for group, topic, group_topic in readers
        ]
        read = await self.journals.states_of(asked)
        # Read after the states, so that finished messages are below a head.
        heads = await heads_of_all(self._cells, [each.topic for each in asked], silent)
        return [
            self._current(each, states, heads[each.topic.incarnation]) for each, states in zip(asked, read, strict=True)
        ]

    def _current(self, asked: GroupPartitions, read: Sequence[DeliveryState], heads: dict[int, Head]) -> _Decided:
        group_topic, states = asked.group_topic, dict(zip(asked.partitions, read, strict=True))
        for partition, state in states.items():
            apply_seek(state, group_topic, partition)
        committed = {partition: state.committed for partition, state in states.items()}
        cut: dict[int, int] = {}
        for partition, head in heads.items():
            before = states[partition].counts.cut
            apply(states[partition], MessagesCut(head.log_start), 0)
            cut[partition] = states[partition].counts.cut - before
        return _Decided(committed=committed, by_partition=states, heads=heads, cut=cut)

    async def silent_cells(self, topics: Iterable[Topic]) -> frozenset[int]:
        """Return the cells of the topics that do not respond."""
        return await silent_cells(self._cells, (cell for topic in topics for cell in topic.cells))

    async def not_begun(self, group: Group, topic: Topic) -> list[PartitionProgress]:
        """Return the progress of a topic in which the group has no position yet."""
        heads = await heads_of(self._cells, topic)
        view = GroupView(group=group, now_ms=0)
        found: list[PartitionProgress] = []
        for partition, end in enumerate(_ends(topic, heads)):
            look = Look(view=view, topic=topic.name, partition=partition, high_watermark=end)
            head = heads.get(partition)
            one = _progress(begin(end), look, Times(), log_start=head.log_start if head else 0)
            stuck = without_position(group.name, topic.name, partition)
            found.append(structs.replace(one, status=Status.NO_POSITION, stuck=stuck))
        return found

    async def stats(
        self, topic: Topic, readers: Sequence[tuple[Group, GroupTopic]], *, described: bool = False
    ) -> TopicStats:
        decided = await self._decided([(group, topic, group_topic) for group, group_topic in readers])
        dead = await self._dead_counts(topic, [group for group, _ in readers])
        groups = tuple(
            _group_stats(group, each, topic, dead[group.group_id])
            for (group, _), each in zip(readers, decided, strict=True)
        )
        heads = decided[0].heads if decided else await heads_of(self._cells, topic)
        filled = {partition: head for partition, head in heads.items() if head.next_offset > head.log_start}
        firsts = await self._appended_ms(topic, {each: head.log_start for each, head in filled.items()})
        return TopicStats(
            topic=topic.name,
            partitions=topic.partitions,
            messages=sum(head.next_offset - head.log_start for head in filled.values()),
            oldest_at=to_time(min(firsts.values(), default=None)),
            newest_at=to_time(max((to_ms(head.appended_at) for head in filled.values()), default=None)),
            dead_letters=sum(group.dead_letters for group in groups),
            groups=groups,
            described=await self._described(topic, heads) if described else None,
        )

    async def _described(self, topic: Topic, heads: Mapping[int, Head]) -> TopicInfo:
        return topic_info(topic, [heads[each] for each in sorted(heads)], await self._cells[topic.cells[0]].clock())

    async def dead_count(self, group: Group, topics: Iterable[Topic], silent: Collection[int] = ()) -> int:
        """Return the number of dead letters in these topics, without those in `silent` cells."""
        shares: dict[int, list[int]] = {}
        for topic in topics:
            for cell, pids in topic.pids_by_cell().items():
                shares.setdefault(cell, []).extend(pids)
        reads = [(cell, pids) for cell, pids in shares.items() if cell not in silent]
        return sum(await gathered(self._cells[cell].groups.dead_count(group.group_id, pids) for cell, pids in reads))

    async def _dead_counts(self, topic: Topic, groups: Sequence[Group]) -> dict[int, int]:
        """Return the number of dead letters in a topic by group id."""
        counts = {group.group_id: 0 for group in groups}
        if counts:
            shares = topic.pids_by_cell().items()
            for found in await gathered(
                self._cells[cell].groups.dead_counts(dict.fromkeys(counts, pids)) for cell, pids in shares
            ):
                for group_id, count in found.items():
                    counts[group_id] += count
        return counts

    async def _appended_ms(self, topic: Topic, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return when the offset of each partition was appended, without offsets that retention has removed."""
        asks = {partition: (topic.pid(partition), offset) for partition, offset in offsets.items()}
        found = {ask: self._times[ask] for ask in asks.values() if ask in self._times}
        missing: dict[int, list[tuple[int, int]]] = {}
        for partition, ask in asks.items():
            if ask not in found:
                missing.setdefault(topic.cells[partition], []).append(ask)
        for part in await gathered(self._times_of(cell, each) for cell, each in missing.items()):
            found.update(part)
        return {partition: found[ask] for partition, ask in asks.items() if ask in found}

    async def _times_of(self, cell: int, asks: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
        kept = self._times
        reads = await self.extents.read_many(self._cells[cell], asks, max_messages=1, max_bytes=1)
        found = {
            ask: to_ms(read.batches[0].appended_at)
            for ask, read in zip(asks, reads, strict=True)
            if isinstance(read, ReadResult) and read.batches
        }
        kept.update(found)
        while len(kept) > _KEPT_TIMES:
            kept.popitem(last=False)
        failed = [ask for ask, read in zip(asks, reads, strict=True) if isinstance(read, LakelogError)]
        if failed:
            # The approximate time of a message that cannot be read is known without its file.
            times = await self._cells[cell].append_times(failed)
            found.update({ask: to_ms(time) for ask, time in zip(failed, times, strict=True) if time is not None})
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A group in all partitions of a topic.

    `by_partition` has the states with seeks and retention applied, `committed` has the decided offsets.

    They differ by the messages that retention removed. The group probably does not get these messages, but a server
    that has not noticed the removal may still deliver them. Committed offsets never fall, so they pass these messages
    only when the group does.
    """

    committed: dict[int, int]
    by_partition: dict[int, DeliveryState]
    heads: dict[int, Head]
    cut: dict[int, int]
    """The number of messages that retention removed, and that the group has not noticed."""


def _group_stats(group: Group, decided: _Decided, topic: Topic, dead_letters: int) -> GroupStats:
    states, ends = list(decided.by_partition.values()), _ends(topic, decided.heads)
    return GroupStats(
        group=group.name,
        kind=group.kind,
        lag=sum(summarize(state).lag(end) for state, end in zip(states, ends, strict=True)),
        pending=sum(state.open_count + len(state.waiting) for state in states),
        dead_letters=dead_letters,
        committed=decided.committed,
    )


def next_offsets(state: DeliveryState, high_watermark: int) -> set[int]:
    """Return the offsets that a consumer would read next: the first unfinished and the first unread message."""
    return {offset for offset in (state.committed, state.frontier) if offset < high_watermark}


def _unknown(group: Group, topic: Topic, partition: int) -> PartitionProgress:
    """Return the progress in a partition whose cell does not respond: no figure is known."""
    look = Look(view=GroupView(group=group, now_ms=0), topic=topic.name, partition=partition, high_watermark=0)
    one = _progress(begin(0), look, Times(), log_start=0)
    stuck = unresponsive(group.name, topic.name, partition, topic.cells[partition])
    return structs.replace(one, status=Status.UNRESPONSIVE, stuck=stuck)


def _held(states: Mapping[str, Mapping[int, DeliveryState]], now_ms: int) -> Held:
    """Return the number of leased messages by owner and partition."""
    held: dict[str, dict[tuple[str, int], int]] = {}
    for topic, of_topic in states.items():
        for partition, state in of_topic.items():
            for lease in state.leases.values():
                if lease.until_ms > now_ms:
                    places = held.setdefault(lease.owner, {})
                    places[topic, partition] = places.get((topic, partition), 0) + len(lease.open)
    return held


def _progress(state: DeliveryState, look: Look, times: Times, *, log_start: int) -> PartitionProgress:
    status, stuck = explain(state, look, times)
    counts = state.counts
    return PartitionProgress(
        topic=look.topic,
        partition=look.partition,
        committed=state.committed,
        frontier=state.frontier,
        log_start=log_start,
        high_watermark=look.high_watermark,
        epoch=state.epoch,
        lag=summarize(state).lag(look.high_watermark),
        leased=state.open_count,
        waiting=len(state.waiting),
        skipped=state.skipped_count,
        acked=counts.acked,
        dead=counts.dead,
        discarded=counts.discarded,
        filtered=counts.filtered,
        expired=counts.expired,
        cut=counts.cut,
        status=status,
        oldest_at=to_time(times.oldest_ms),
        next_due_at=to_time(state.next_due_ms()),
        leases=tuple(_lease_info(look, lease) for lease in state.leases.values()),
        stuck=stuck,
    )


def _lease_info(look: Look, lease: Lease) -> LeaseInfo:
    return LeaseInfo(
        topic=look.topic,
        partition=look.partition,
        token=lease.token,
        owner=lease.owner,
        offsets=tuple((first, end - 1) for first, end in pairs(lease.open.ranges)),
        granted_at=to_time(lease.granted_ms),
        expires_at=to_time(lease.until_ms),
        suspect=lease.suspect,
    )
