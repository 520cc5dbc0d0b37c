"""Summaries of many groups: lag, age, members, dead letters and status. The module changes nothing.

The number of statements does not grow with the number of groups. A commit stores its figures in its journal row, so
only the last row of each journal is read. Messages are not counted, because heads and journals have offsets.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from lakelog.coordinator.leasing.applying import apply
from lakelog.coordinator.leasing.codec import decode_state, decode_summary
from lakelog.coordinator.leasing.events import MessagesCut
from lakelog.coordinator.leasing.state import begin
from lakelog.coordinator.leasing.summary import ProgressSummary, summarize
from lakelog.engine.groups.positions import gathered
from lakelog.engine.groups.progress import apply_seek
from lakelog.engine.groups.reasons import GroupView, Look, Status, status_of, status_of_group
from lakelog.engine.groups.silence import silent_cells
from lakelog.engine.leasing.journal import replay_rows
from lakelog.errors import LakelogError
from lakelog.model.group import Group, GroupTopic
from lakelog.model.progress import GroupSummary, MemberInfo
from lakelog.model.times import to_ms, to_time
from lakelog.model.topic import Topic
from lakelog.storage.groups import JournalRequest, JournalRow
from lakelog.storage.store import Head, PartitionStore

_log = logging.getLogger(__name__)

MAX_DEAD_LETTERS = 10_000
"""Dead letters of a group are counted up to this number."""

Members = Mapping[int, Sequence[MemberInfo]]
"""The members of each group, by group id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A group in one partition. `place` holds the ids of the group and the partition."""

    group: Group
    topic: Topic
    group_topic: GroupTopic
    partition: int
    cell: int
    pid: int

    @property
    def place(self) -> tuple[int, int]:
        return self.group.group_id, self.pid


@dataclass(slots=True, kw_only=True)
class _Facts:
    """The data that was read: figures and ages by group and partition, heads by partition, the rest by group."""

    figures: Mapping[tuple[int, int], ProgressSummary]
    heads: Mapping[int, Head]
    oldest_ms: Mapping[tuple[int, int], int]
    dead_letters: Mapping[int, int]
    members: Members
    silent: Collection[int]
    """The cells that do not respond, from which nothing was read."""
    now_ms: int

    def unresponsive(self, group: Group, parts: Iterable[_Part]) -> list[Status]:
        """Return the status of the partitions whose cell, or the home cell of the group, does not respond."""
        is_homeless = group.cell in self.silent
        return [Status.UNRESPONSIVE for part in parts if is_homeless or part.cell in self.silent]

    def end(self, part: _Part) -> int:
        return self.heads[part.pid].next_offset if part.pid in self.heads else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """A group in a topic: its figures, and its status in each partition, without those that a newer version wrote."""

    topic: Topic
    group_topic: GroupTopic
    lag: int
    oldest_seconds: float
    leased: int
    waiting: int
    statuses: Sequence[Status]
    finished: int
    """Messages below the frontiers that are finished."""
    lags: Sequence[int]
    """The lag of each partition that can be read, in order."""

    @property
    def is_whole(self) -> bool:
        """Return whether the figures contain all partitions."""
        return len(self.lags) == self.topic.partitions

    @property
    def group_id(self) -> int:
        return self.group_topic.group_id


class Summaries:
    """Reads the summaries from all cells; one per engine."""

    def __init__(self, cells: Mapping[int, PartitionStore]) -> None:
        self._cells = cells

    async def silent_cells(
        self, groups: Sequence[Group], group_topics: Iterable[tuple[Topic, GroupTopic]]
    ) -> frozenset[int]:
        """Return the cells of these groups and topics that do not respond."""
        homes = {group.cell for group in groups}
        return await silent_cells(self._cells, homes.union(*(topic.cells for topic, _ in group_topics)))

    async def read(
        self,
        groups: Sequence[Group],
        group_topics: Sequence[tuple[Topic, GroupTopic]],
        members: Members,
        silent: Collection[int] = (),
    ) -> list[GroupSummary]:
        """Return a summary of each group, in order. `group_topics` and `members` are those of all these groups.

        Nothing is read from `silent` cells.
        """
        parts = _parts(groups, group_topics)
        by_group: dict[int, list[_Part]] = {group.group_id: [] for group in groups}
        for part in parts:
            by_group[part.group.group_id].append(part)
        facts = await self._facts(groups, parts, members, silent)
        return [_summary(group, by_group[group.group_id], facts) for group in groups]

    async def by_topic(
        self,
        groups: Sequence[Group],
        group_topics: Sequence[tuple[Topic, GroupTopic]],
        members: Members,
        silent: Collection[int] = (),
    ) -> list[TopicFigures]:
        """Return the figures of each group in each of these topics, in order, like `read`."""
        parts = _parts(groups, group_topics)
        facts = await self._facts(groups, parts, members, silent, with_dead=False)
        by_pair: dict[tuple[int, int], list[_Part]] = {}
        for part in parts:
            by_pair.setdefault((part.group.group_id, part.topic.incarnation), []).append(part)
        places = [(topic, each, by_pair[each.group_id, topic.incarnation]) for topic, each in group_topics]
        return [_topic_figures(topic, each, mine, facts) for topic, each, mine in places]

    async def dead_letters(
        self,
        groups: Sequence[Group],
        group_topics: Iterable[tuple[Topic, GroupTopic]],
        silent: Collection[int] = (),
    ) -> dict[int, int]:
        """Return the number of dead letters by group id, without those in `silent` cells.

        `group_topics` may contain those of other groups.
        """
        counts = {group.group_id: 0 for group in groups}
        by_cell: dict[int, dict[int, list[int]]] = {}
        for topic, each in group_topics:
            for cell, pids in topic.pids_by_cell().items() if each.group_id in counts else ():
                by_cell.setdefault(cell, {}).setdefault(each.group_id, []).extend(pids)
        for cell, wanted in by_cell.items():
            if cell in silent:
                continue
            found = await self._cells[cell].groups.dead_counts(wanted, limit=MAX_DEAD_LETTERS)
            for group_id, count in found.items():
                counts[group_id] = min(MAX_DEAD_LETTERS, counts[group_id] + count)
        return counts

    async def _facts(
        self,
        groups: Sequence[Group],
        parts: Sequence[_Part],
        members: Members,
        silent: Collection[int],
        *,
        with_dead: bool = True,
    ) -> _Facts:
        by_cell: dict[int, list[_Part]] = {}
        for part in parts:
            if part.cell not in silent:
                by_cell.setdefault(part.cell, []).append(part)
        shares = await gathered(self._read_cell(cell, mine, with_dead) for cell, mine in by_cell.items())
        return _Facts(
            figures={place: each for share in shares for place, each in share.figures.items()},
            heads={pid: each for share in shares for pid, each in share.heads.items()},
            oldest_ms={place: each for share in shares for place, each in share.oldest_ms.items()},
            dead_letters={
                group.group_id: sum(share.dead_letters.get(group.group_id, 0) for share in shares) for group in groups
            },
            members=members,
            silent=silent,
            now_ms=max((share.now_ms for share in shares), default=0),
        )

    async def _read_cell(self, cell: int, parts: Sequence[_Part], with_dead: bool) -> _Facts:
        store = self._cells[cell]
        pids: dict[int, list[int]] = {}
        for part in parts if with_dead else ():
            pids.setdefault(part.group.group_id, []).append(part.pid)

        async def dead_letters() -> dict[int, int]:
            return await store.groups.dead_counts(pids, limit=MAX_DEAD_LETTERS) if pids else {}

        facts, dead = await asyncio.gather(self._read_progress(store, parts), dead_letters())
        return dataclasses.replace(facts, dead_letters=dead)

    async def _read_progress(self, store: PartitionStore, parts: Sequence[_Part]) -> _Facts:
        """Return the facts of a cell, without dead letters."""
        rows = await store.groups.journals_newest([part.place for part in parts])
        # Read after the journals, so that finished messages are below a head.
        heads = {head.pid: head for head in await store.heads_read(list({part.pid: None for part in parts}))}
        figures = await self._figures(store, parts, rows, heads)
        return _Facts(
            figures=figures,
            heads=heads,
            oldest_ms=await self._oldest_ms(store, figures, heads),
            dead_letters={},
            members={},
            silent=(),
            now_ms=to_ms(await store.clock()),
        )

    async def _figures(
        self,
        store: PartitionStore,
        parts: Sequence[_Part],
        rows: Sequence[JournalRow | None],
        heads: Mapping[int, Head],
    ) -> dict[tuple[int, int], ProgressSummary]:
        found: dict[tuple[int, int], ProgressSummary] = {}
        unknown: list[_Part] = []
        for part, row in zip(parts, rows, strict=True):
            log_start = heads[part.pid].log_start if part.pid in heads else 0
            try:
                figures = _cut(_sought(_noted(part, row), part), log_start)
            except LakelogError as error:
                _log.debug("The progress of group '%s' cannot be read: %s", part.group.name, error)
                continue
            if figures is None:
                unknown.append(part)
            else:
                found[part.place] = figures
        if unknown:
            asks = [JournalRequest(group_id=part.group.group_id, pid=part.pid) for part in unknown]
            for part, read in zip(unknown, await store.groups.journals_read(asks), strict=True):
                try:
                    state, _ = replay_rows(begin(part.group_topic.start(part.partition)), read)
                except LakelogError as error:
                    _log.debug("The progress of group '%s' cannot be read: %s", part.group.name, error)
                    continue
                apply_seek(state, part.group_topic, part.partition)
                if part.pid in heads:
                    apply(state, MessagesCut(heads[part.pid].log_start), 0)
                found[part.place] = summarize(state)
        return found

    async def _oldest_ms(
        self, store: PartitionStore, figures: Mapping[tuple[int, int], ProgressSummary], heads: Mapping[int, Head]
    ) -> dict[tuple[int, int], int]:
        """Return when the oldest unfinished messages were appended."""
        behind = {
            (group_id, pid): (pid, each.committed)
            for (group_id, pid), each in figures.items()
            if pid in heads and each.lag(heads[pid].next_offset)
        }
        # Groups that wait at the same message share one read.
        asks = list(dict.fromkeys(behind.values()))
        times = dict(zip(asks, await store.append_times(asks) if asks else [], strict=True))
        return {place: to_ms(time) for place, ask in behind.items() if (time := times[ask]) is not None}


def _parts(groups: Sequence[Group], group_topics: Iterable[tuple[Topic, GroupTopic]]) -> list[_Part]:
    by_id = {group.group_id: group for group in groups}
    return [
        _Part(
            group=by_id[group_topic.group_id],
            topic=topic,
            group_topic=group_topic,
            partition=partition,
            cell=cell,
            pid=topic.pid(partition),
        )
        for topic, group_topic in group_topics
        for partition, cell in enumerate(topic.cells)
    ]


def _noted(part: _Part, row: JournalRow | None) -> ProgressSummary | None:
    """Return the figures of the journal's last row; None if it has none."""
    if row is None:
        return summarize(begin(part.group_topic.start(part.partition)))
    return summarize(decode_state(row.body)) if row.snapshot else decode_summary(row.body)


def _sought(figures: ProgressSummary | None, part: _Part) -> ProgressSummary | None:
    """Return the figures with the last seek applied, if the journal does not contain it yet."""
    target = part.group_topic.target(part.partition)
    if figures is None or figures.epoch >= part.group_topic.epoch or target is None:
        return figures
    return replace(summarize(begin(target)), epoch=part.group_topic.epoch)


def _cut(figures: ProgressSummary | None, log_start: int) -> ProgressSummary | None:
    """Return the figures without what retention removed; None if that needs the whole state."""
    if figures is None or figures.committed >= log_start:
        return figures
    if figures.waiting or figures.skipped:
        return None
    committed = figures.committed if figures.leased else log_start
    return replace(figures, frontier=max(figures.frontier, log_start), committed=committed)


def _looks(group: Group, parts: Sequence[_Part], facts: _Facts) -> list[Look]:
    """Return what determines the status in each partition."""
    # The owners of the leases are not known here, only that there are some.
    leased = {
        (part.topic.name, part.partition): each.leased
        for part in parts
        if (each := facts.figures[part.place]).leased_until_ms > facts.now_ms
    }
    members = facts.members.get(group.group_id, ())
    view = GroupView(group=group, now_ms=facts.now_ms, members=members, held={"": leased} if leased else {})
    return [
        Look(view=view, topic=part.topic.name, partition=part.partition, high_watermark=facts.end(part))
        for part in parts
    ]


def _topic_figures(topic: Topic, group_topic: GroupTopic, parts: Sequence[_Part], facts: _Facts) -> TopicFigures:
    group = parts[0].group
    unresponsive = facts.unresponsive(group, parts)
    parts = [part for part in parts if part.place in facts.figures]
    looks = _looks(group, parts, facts)
    figures = [facts.figures[part.place] for part in parts]
    oldest = min((facts.oldest_ms[part.place] for part in parts if part.place in facts.oldest_ms), default=facts.now_ms)
    lags = [each.lag(look.high_watermark) for each, look in zip(figures, looks, strict=True)]
    return TopicFigures(
        topic=topic,
        group_topic=group_topic,
        lag=sum(lags),
        oldest_seconds=max(0, facts.now_ms - oldest) / 1000,
        leased=sum(each.leased for each in figures),
        waiting=sum(each.waiting for each in figures),
        statuses=unresponsive if group.cell in facts.silent else [*unresponsive, *map(status_of, figures, looks)],
        finished=sum(each.finished for each in figures),
        lags=lags,
    )


def _summary(group: Group, parts: Sequence[_Part], facts: _Facts) -> GroupSummary:
    # Without those that a newer version wrote, so that the other partitions are shown.
    readable = [part for part in parts if part.place in facts.figures]
    unresponsive = facts.unresponsive(group, parts)
    unreadable = [Status.UNREADABLE] if len(readable) + len(unresponsive) < len(parts) else []
    parts = readable
    figures = [facts.figures[part.place] for part in parts]
    looks = _looks(group, parts, facts)
    oldest = [facts.oldest_ms[part.place] for part in parts if part.place in facts.oldest_ms]
    return GroupSummary(
        **group.stated(),
        status=status_of_group(group, [*unresponsive, *unreadable, *map(status_of, figures, looks)]),
        lag=sum(each.lag(look.high_watermark) for each, look in zip(figures, looks, strict=True)),
        oldest_at=to_time(min(oldest, default=None)),
        member_count=len(facts.members.get(group.group_id, ())),
        dead_letters=min(MAX_DEAD_LETTERS, facts.dead_letters[group.group_id]),
    )
