"""How far groups are: progress per partition, why one stands still, and the figures of a topic. Changes nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from lakelog.coordinator.leasing import Lease, Operation, Reply, State, apply, begin
from lakelog.coordinator.leasing.events import CutOff, Sought, pairs, to_ranges
from lakelog.coordinator.leasing.operations import LOOK_AHEAD
from lakelog.coordinator.leasing.taking import ALONE_WITHIN_MS
from lakelog.engine.consuming import LeaseInfo, MembersInfo, PartitionProgress
from lakelog.engine.extents import Extents
from lakelog.engine.positions import gathered, heads_of
from lakelog.model.group import Group, GroupKind, Reading
from lakelog.model.topic import Topic
from lakelog.storage.store import Head, Read

_NAMED_OWNERS = 5
_KEPT_TIMES = 10_000


class LedgerBook(Protocol):
    """What the verbs of groups need of the ledgers: see `lakelog.engine.ledgers`."""

    def altered(self, group: Group) -> None: ...

    async def run(
        self, group: Group, reading: Reading, topic: Topic, partition: int, operation: Operation
    ) -> Reply: ...

    async def states(self, group: Group, topic: Topic, reading: Reading, partitions: Sequence[int]) -> list[State]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """A group's figures in one topic. `pending` is leased or waiting for its next try."""

    group: str
    kind: GroupKind
    lag: int
    pending: int
    dead_letters: int
    committed: Mapping[int, int]
    """By partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """A topic's figures. Times are those at which the oldest and the newest message in reach were appended."""

    topic: str
    partitions: int
    messages: int
    oldest_ms: int | None
    newest_ms: int | None
    groups: Sequence[GroupStats]

    @property
    def dead_letters(self) -> int:
        return sum(group.dead_letters for group in self.groups)


def target_of(reading: Reading, partition: int) -> int | None:
    """Where the reading's last seek puts the partition; None if it leaves it where it is."""
    return reading.targets[partition] if partition < len(reading.targets) else None


def _ends(topic: Topic, heads: Mapping[int, Head]) -> list[int]:
    return [heads[each].next_offset if each in heads else 0 for each in range(topic.partitions)]


class Progress:
    """Reads states, heads and first batches; one per engine."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._cells = extents.cells
        self._times: OrderedDict[tuple[int, int], int] = OrderedDict()
        """When messages were appended, by pid and offset, the newest known last: it never changes."""

    async def states(
        self, ledgers: LedgerBook, group: Group, topic: Topic, reading: Reading
    ) -> tuple[list[State], dict[int, Head]]:
        """All partitions' states as the next step will find them, and the heads."""
        _, states, heads = await self._decided(ledgers, group, topic, reading)
        return states, heads

    async def read(
        self, ledgers: LedgerBook, group: Group, topic: Topic, reading: Reading, members: MembersInfo | None
    ) -> list[PartitionProgress]:
        """With the age of the oldest unfinished message, where there is one: one read of each cell for all of them."""
        committed, states, heads = await self._decided(ledgers, group, topic, reading)
        now_ms = to_ms(await self._cells[group.cell].clock())
        ends = _ends(topic, heads)
        behind = {each: state.committed for each, state in enumerate(states) if _lag(state, ends[each])}
        oldest = await self._appended_ms(topic, behind)

        def one(partition: int, state: State) -> PartitionProgress:
            look = _Look(group=group, topic=topic, partition=partition, now_ms=now_ms, members=members)
            log_start = heads[partition].log_start if partition in heads else 0
            found = _progress(
                state, look, log_start=log_start, high_watermark=ends[partition], oldest_ms=oldest.get(partition)
            )
            return replace(found, committed=committed[partition])

        return [one(partition, state) for partition, state in enumerate(states)]

    async def _decided(
        self, ledgers: LedgerBook, group: Group, topic: Topic, reading: Reading
    ) -> tuple[list[int], list[State], dict[int, Head]]:
        """Committed offsets as decided; states as the next step will find them; heads.

        They differ by what retention took. It is likely gone for the group, but not surely: a server that did not hear
        of it yet may still hand it out. So committed offsets, which never fall, go past it only when the group does.
        """
        states = await ledgers.states(group, topic, reading, range(topic.partitions))
        # Read after the states: what is finished lies below a head.
        heads = await heads_of(self._cells, topic)
        for partition, state in enumerate(states):
            if state.epoch < reading.epoch and (target := target_of(reading, partition)) is not None:
                apply(state, Sought(reading.epoch, target), 0)
        committed = [state.committed for state in states]
        for partition, head in heads.items():
            apply(states[partition], CutOff(head.log_start), 0)
        return committed, states, heads

    async def not_begun(self, group: Group, topic: Topic) -> list[PartitionProgress]:
        """For a topic in which the group has no position yet."""
        heads = await heads_of(self._cells, topic)
        looks = (_Look(group=group, topic=topic, partition=n, now_ms=0, members=None) for n in range(topic.partitions))
        return [_not_begun(look, heads.get(look.partition)) for look in looks]

    async def stats(self, ledgers: LedgerBook, topic: Topic, readers: Sequence[tuple[Group, Reading]]) -> TopicStats:
        groups = [await self._group_stats(ledgers, group, topic, reading) for group, reading in readers]
        heads = await heads_of(self._cells, topic)
        filled = {partition: head for partition, head in heads.items() if head.next_offset > head.log_start}
        firsts = await self._appended_ms(topic, {each: head.log_start for each, head in filled.items()})
        return TopicStats(
            topic=topic.name,
            partitions=topic.partitions,
            messages=sum(head.next_offset - head.log_start for head in filled.values()),
            oldest_ms=min(firsts.values(), default=None),
            newest_ms=max((to_ms(head.appended_at) for head in filled.values()), default=None),
            groups=groups,
        )

    async def dead_count(self, group: Group, topic: Topic) -> int:
        shares = topic.pids_by_cell().items()
        return sum(await gathered(self._cells[cell].groups.dead_count(group.group_id, pids) for cell, pids in shares))

    async def _group_stats(self, ledgers: LedgerBook, group: Group, topic: Topic, reading: Reading) -> GroupStats:
        committed, states, heads = await self._decided(ledgers, group, topic, reading)
        ends = _ends(topic, heads)
        return GroupStats(
            group=group.name,
            kind=group.kind,
            lag=sum(_lag(state, end) for state, end in zip(states, ends, strict=True)),
            pending=sum(state.open_count + len(state.waiting) for state in states),
            dead_letters=await self.dead_count(group, topic),
            committed=dict(enumerate(committed)),
        )

    async def _appended_ms(self, topic: Topic, offsets: Mapping[int, int]) -> dict[int, int]:
        """By partition, when its offset was appended; one that retention went past meanwhile is left out."""
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
        reads = await self._extents.read_many(self._cells[cell], asks, max_messages=1, max_bytes=1)
        found = {
            ask: to_ms(read.batches[0].appended_at)
            for ask, read in zip(asks, reads, strict=True)
            if isinstance(read, Read) and read.batches
        }
        self._times.update(found)
        while len(self._times) > _KEPT_TIMES:
            self._times.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a partition's progress is looked at with."""

    group: Group
    topic: Topic
    partition: int
    now_ms: int
    members: MembersInfo | None


def _progress(
    state: State, look: _Look, *, log_start: int, high_watermark: int, oldest_ms: int | None
) -> PartitionProgress:
    lag, counts = _lag(state, high_watermark), state.counts
    return PartitionProgress(
        topic=look.topic.name,
        partition=look.partition,
        committed=state.committed,
        frontier=state.frontier,
        log_start=log_start,
        high_watermark=high_watermark,
        epoch=state.epoch,
        lag=lag,
        leased=state.open_count,
        waiting=len(state.waiting),
        skipped=state.skipped_count,
        acked=counts.acked,
        dead=counts.dead,
        discarded=counts.discarded,
        filtered=counts.filtered,
        expired=counts.expired,
        cut=counts.cut,
        oldest_ms=oldest_ms,
        next_due_ms=state.next_due_ms(),
        leases=[_lease_info(lease) for lease in state.leases.values()],
        stuck=_stuck(state, look, high_watermark) if lag else None,
    )


def _lag(state: State, high_watermark: int) -> int:
    unread = max(0, high_watermark - state.frontier)
    return unread + state.open_count + len(state.waiting) + state.skipped_count


def _lease_info(lease: Lease) -> LeaseInfo:
    return LeaseInfo(
        token=lease.token,
        owner=lease.owner,
        offsets=list(pairs(to_ranges(sorted(lease.open)))),
        granted_ms=lease.granted_ms,
        expires_ms=lease.until_ms,
        suspect=lease.suspect,
    )


def _not_begun(look: _Look, head: Head | None) -> PartitionProgress:
    end = head.next_offset if head else 0
    log_start = head.log_start if head else 0
    found = _progress(begin(end), look, log_start=log_start, high_watermark=end, oldest_ms=None)
    return replace(
        found,
        stuck="The group has no position in this topic: no consumer has asked for it, or it is to be given one "
        f"with `lakelog groups seek {look.group.name} {look.topic.name}`.",
    )


# Why a partition with unfinished messages stands still, and what to do ------------------------------------------------


def _stuck(state: State, look: _Look, high_watermark: int) -> str | None:
    group = look.group
    if group.is_paused(look.topic.name):
        return f"The group is paused here; `lakelog groups resume {group.name}` lets it go on."
    if group.kind is GroupKind.CURSOR:
        return _stuck_cursor(look)
    leases = [lease for lease in state.leases.values() if lease.until_ms > look.now_ms]
    if state.open_count + len(state.waiting) >= group.settings.window:
        return _stuck_full(state, leases, group)
    if leases:
        return None
    is_unread = state.frontier < high_watermark and state.skipped_count < LOOK_AHEAD
    if is_unread or state.has_ready() or state.leases:
        return f"No consumer is at work on it; start one of group '{group.name}', or look whether those are alive."
    return _stuck_waiting(state, look)


def _stuck_cursor(look: _Look) -> str | None:
    if look.members is None:
        return None
    if not look.members.members:
        return f"The group has no member: no consumer has asked for it. Start one of group '{look.group.name}'."
    held = (member.assigned.get(look.topic.name, ()) for member in look.members.members)
    if any(look.partition in partitions for partitions in held):
        return None
    return "No member has this partition: it changes hands, or no member reads the topic."


def _stuck_full(state: State, leases: Sequence[Lease], group: Group) -> str:
    owners = sorted({lease.owner for lease in leases})
    named = ", ".join(owners[:_NAMED_OWNERS]) + (" and others" if len(owners) > _NAMED_OWNERS else "")
    holders = f" (owners: {named})" if named else ""
    return (
        f"The window of {group.settings.window} messages is full: {state.open_count} are leased{holders} and "
        f"{len(state.waiting)} wait for their next try. It goes on when some are answered; if this is usual, "
        f"raise the window with `lakelog groups alter {group.name}`."
    )


def _stuck_waiting(state: State, look: _Look) -> str | None:
    due = [time for time in (state.first_due(), state.first_suspect_due()) if time is not None]
    if not due:
        return None
    if min(due) > look.now_ms:
        behind = f", and {state.skipped_count} behind them for the same keys" if state.skipped_count else ""
        return f"{len(state.waiting)} messages wait for their next try{behind}; the first is due at {_time(min(due))}."
    if state.first_due() is None:
        return (
            f"{len(state.waiting)} messages lost their owner. Each is handed out alone, to an owner with nothing else "
            f"in hand, or after {ALONE_WITHIN_MS // 1000} s with others; let the owners answer what they hold, or "
            "start another one."
        )
    return f"Messages are due for their next try, and no consumer of group '{look.group.name}' has asked for them."


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_ms(time: datetime) -> int:
    """Milliseconds since 1970."""
    return round(time.timestamp() * 1000)
