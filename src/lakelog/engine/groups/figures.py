"""Figures of many groups for metrics: lag, age, members, rebalances and causes. The module changes nothing.

The number of statements does not grow with the number of groups, except for a few groups that wait for long, whose
causes need the whole progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakelog.engine.groups.members import Members
from lakelog.engine.groups.progress import ProgressReader
from lakelog.engine.groups.reasons import Status
from lakelog.engine.groups.summaries import Summaries, TopicFigures
from lakelog.engine.leasing.consuming import MembersInfo
from lakelog.errors import LakelogError
from lakelog.model.group import Group
from lakelog.model.stuck import StuckCode
from lakelog.model.topic import Scope
from lakelog.storage.store import Catalog

IsHome = Callable[[str, str], bool]
"""Whether this server reports a group in a topic; with an empty topic, the group itself."""
PAGE = 1000
EXPLAINED = 50
"""The most pairs of group and topic whose causes are read from their whole progress, those that wait longest."""
EXPLAINED_AFTER_SECONDS = 60.0
EXPLAINED_PARTITIONS = 256

_CODES: Mapping[Status, StuckCode] = {
    Status.PAUSED: StuckCode.PAUSED,
    Status.NO_CONSUMER: StuckCode.NO_MEMBER,
    Status.FULL: StuckCode.WINDOW_FULL,
    Status.RETRYING: StuckCode.RETRY_WAVE,
    Status.REBALANCING: StuckCode.REBALANCING,
    Status.QUEUED: StuckCode.CAPACITY,
    Status.UNRESPONSIVE: StuckCode.UNRESPONSIVE_CELL,
}
"""The causes that follow from the status alone."""
_HIDES = frozenset({Status.WORKING, Status.FULL, Status.RETRYING, Status.QUEUED, Status.NO_CONSUMER})
"""The statuses that may have another cause, which only the whole progress shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopicFigures:
    """A group in a topic.

    `stuck` has the number of partitions by cause. `finished` counts messages below the frontiers; a seek may lower it.
    """

    group: str
    topic: str
    group_id: int
    incarnation: int
    lag: int
    oldest_seconds: float
    leased: int
    waiting: int
    stuck: Mapping[StuckCode, int]
    finished: int
    lags: Sequence[int]
    """The lag of each partition, in order."""
    is_whole: bool
    """False if some partitions cannot be read, whose messages are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """A group in all of its topics."""

    group: str
    members: int
    dead_letters: int
    rebalances: int
    rebalancing_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of an environment that this server reports."""

    groups: list[GroupFigures] = field(default_factory=list)
    topics: list[GroupTopicFigures] = field(default_factory=list)


class FigureReader:
    """Reads the figures of environments; one per engine."""

    def __init__(self, catalog: Catalog, members: Members, progress: ProgressReader, summaries: Summaries) -> None:
        self._catalog = catalog
        self._members = members
        self._progress = progress
        self._summaries = summaries

    async def read(self, scope: Scope, is_home: IsHome, *, explains: bool = True) -> Figures:
        """Return the figures of the groups, and of the groups in their topics, whose home is this server.

        Without `explains`, only causes that follow from the status are named, which needs fewer reads.
        Partitions in cells that do not respond are counted as unresponsive, and have no other figure. A group whose
        home cell does not respond has no figures of its own.
        """
        found, after = Figures(), ""
        while True:
            groups = await self._catalog.groups.group_list(scope, after=after, limit=PAGE)
            if groups:
                await self._read_page(groups, is_home, explains, found)
            if len(groups) < PAGE:
                return found
            after = groups[-1].name

    async def _read_page(self, groups: Sequence[Group], is_home: IsHome, explains: bool, found: Figures) -> None:
        by_id = {group.group_id: group for group in groups}
        pairs = await self._catalog.groups.group_topic_list(*groups)
        mine = [(topic, each) for topic, each in pairs if is_home(by_id[each.group_id].name, topic.name)]
        silent = await self._summaries.silent_cells(groups, mine)
        members = await self._members.infos(groups, silent)
        listed = {name: each.members for name, each in members.items()}
        figures = await self._summaries.by_topic(groups, mine, listed, silent)
        codes = await self._codes(by_id, figures, members, silent) if explains else {}
        found.topics.extend(_topic_figures(by_id[each.group_id], each, codes) for each in figures)
        homes = [group for group in groups if group.cell not in silent and is_home(group.name, "")]
        dead = await self._summaries.dead_letters(homes, pairs, silent)
        found.groups.extend(_group_figures(each, members[each.group_id], dead[each.group_id]) for each in homes)

    async def _codes(
        self,
        groups: Mapping[int, Group],
        figures: Sequence[TopicFigures],
        members: Mapping[int, MembersInfo],
        silent: Collection[int],
    ) -> dict[tuple[int, str], Mapping[StuckCode, int]]:
        """Return the causes of those that wait longest, by group and topic."""
        late = [
            each
            for each in figures
            if each.lag
            and each.group_id in members
            and each.oldest_seconds >= EXPLAINED_AFTER_SECONDS
            and each.topic.partitions <= EXPLAINED_PARTITIONS
            and not _HIDES.isdisjoint(each.statuses)
        ]
        late.sort(key=lambda each: each.oldest_seconds, reverse=True)
        found: dict[tuple[int, str], Mapping[StuckCode, int]] = {}
        for each in late[:EXPLAINED]:
            pair = [(each.topic, each.group_topic)]
            try:
                progress = await self._progress.read(groups[each.group_id], pair, members[each.group_id], silent)
            except LakelogError:
                continue  # Its causes then follow from its statuses.
            found[each.group_id, each.topic.name] = Counter(one.stuck.code for one in progress if one.stuck is not None)
        return found


def _topic_figures(
    group: Group, figures: TopicFigures, codes: Mapping[tuple[int, str], Mapping[StuckCode, int]]
) -> GroupTopicFigures:
    known = codes.get((group.group_id, figures.topic.name))
    stuck = Counter(_CODES[each] for each in figures.statuses if each in _CODES) if known is None else known
    return GroupTopicFigures(
        group=group.name,
        topic=figures.topic.name,
        group_id=group.group_id,
        incarnation=figures.topic.incarnation,
        lag=figures.lag,
        oldest_seconds=figures.oldest_seconds,
        leased=figures.leased,
        waiting=figures.waiting,
        stuck=stuck,
        finished=figures.finished,
        lags=figures.lags,
        is_whole=figures.is_whole,
    )


def _group_figures(group: Group, members: MembersInfo, dead_letters: int) -> GroupFigures:
    return GroupFigures(
        group=group.name,
        members=len(members.members),
        dead_letters=dead_letters,
        rebalances=members.rebalances,
        rebalancing_seconds=members.rebalancing_ms / 1000,
    )
