"""The status of a group in a partition, and the reason why unfinished messages wait.

The functions are pure. A reason uses only journals and members; calls that are in flight are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from lakelog.coordinator.leasing.acquiring import ALONE_WITHIN_MS
from lakelog.coordinator.leasing.operations import LOOK_AHEAD
from lakelog.coordinator.leasing.state import DeliveryState
from lakelog.coordinator.leasing.summary import ProgressSummary, summarize
from lakelog.engine.log.damage import Damage, damage_of
from lakelog.errors import LakelogError, SegmentDamaged
from lakelog.model.group import Group, GroupKind, Order
from lakelog.model.progress import MemberInfo

_NAMED = 3
"""A reason names at most this many owners or partitions."""

Held = Mapping[str, Mapping[tuple[str, int], int]]
"""The number of messages that are leased now, by owner, then by topic and partition."""


class Status(StrEnum):
    """The status of a group in a partition."""

    CAUGHT_UP = "caught-up"
    """Every message is finished."""
    WORKING = "working"
    """Messages are leased; in a cursor group, a member reads the partition."""
    QUEUED = "queued"
    """Messages can be delivered, and consumers exist."""
    RETRYING = "retrying"
    """All messages that could be delivered wait for a retry."""
    FULL = "full"
    """Messages are leased, and the window is full."""
    REBALANCING = "rebalancing"
    """A member of a cursor group is about to get the partition."""
    PAUSED = "paused"
    NO_CONSUMER = "no-consumer"
    """Messages can be delivered, but no consumer reads the topic."""
    UNREADABLE = "unreadable"
    """The next message cannot be read: the file of its segment is damaged or missing. In a list of groups, it means
    that a newer version wrote the group's progress.
    """
    UNRESPONSIVE = "unresponsive"
    """The database with the partition does not respond, so nothing is known of it."""
    NO_POSITION = "no-position"
    """The group has no position in the topic."""


_OF_A_GROUP = (
    Status.UNRESPONSIVE,
    Status.UNREADABLE,
    Status.NO_CONSUMER,
    Status.FULL,
    Status.WORKING,
    Status.REBALANCING,
    Status.QUEUED,
    Status.RETRYING,
    Status.PAUSED,
)


def status_of_group(group: Group, partitions: Iterable[Status]) -> Status:
    """Return the status of a group, which is the most important status of its partitions."""
    if "*" in group.paused:
        return Status.PAUSED
    found = set(partitions)
    return next((status for status in _OF_A_GROUP if status in found), Status.CAUGHT_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one time: its members, and who holds messages of it. An owner need not be a member."""

    group: Group
    now_ms: int
    members: Sequence[MemberInfo] = ()
    held: Held = field(default_factory=dict)
    _assigned: dict[tuple[str, int], str] = field(init=False, default_factory=dict)
    """The member by topic and partition: a search for each partition would take time with their square."""
    _topics: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        for member in self.members:
            self._topics.update(member.topics)
            for topic, partitions in member.assigned.items():
                self._assigned.update(dict.fromkeys([(topic, each) for each in partitions], member.member_id))
        self._topics.update(name for places in self.held.values() for name, _ in places)

    def read(self, topic: str) -> bool:
        """Return whether a member reads the topic, or an owner holds messages of it."""
        return topic in self._topics

    def assigned(self, topic: str, partition: int) -> str | None:
        """Return the member that the partition is assigned to."""
        return self._assigned.get((topic, partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Values that determine the status of a partition, besides its own figures."""

    view: GroupView
    topic: str
    partition: int
    high_watermark: int
    damage: Damage | None = None
    """The damage that stops the group in the partition, if it was checked."""


def status_of(figures: ProgressSummary, look: Look) -> Status:
    """Return the status of the group in the partition."""
    if look.view.group.is_paused(look.topic):
        return Status.PAUSED
    if not figures.lag(look.high_watermark):
        return Status.CAUGHT_UP
    if look.view.group.kind is GroupKind.CURSOR:
        return _cursor_status(look)
    if figures.leased_until_ms > look.view.now_ms:
        return Status.FULL if _is_full(figures, look.view.group) else Status.WORKING
    if not _has_available(figures, look):
        return Status.RETRYING
    if look.damage is not None:
        return Status.UNREADABLE
    return Status.QUEUED if look.view.read(look.topic) else Status.NO_CONSUMER


def is_to_be_read(figures: ProgressSummary, look: Look) -> bool:
    """Return whether a consume would now read the next message, so that damage there would stop the group."""
    return status_of(figures, look) in (Status.QUEUED, Status.NO_CONSUMER)


def reason_for(state: DeliveryState, look: Look) -> tuple[Status, str | None]:
    """Return the status of the group in the partition, and why its messages wait, if they do."""
    figures = summarize(state)
    status = status_of(figures, look)
    if not figures.lag(look.high_watermark) or status in (Status.CAUGHT_UP, Status.WORKING):
        return status, None
    match status:
        case Status.PAUSED:
            reason = _paused(look)
        case Status.FULL:
            reason = _full(state, look)
        case Status.RETRYING:
            reason = _retrying(state, figures, look)
        case Status.UNREADABLE if look.damage is not None:
            reason = unreadable(look.view.group, look.topic, look.partition, look.damage)
        case Status.REBALANCING:
            reason = "No member is assigned this partition yet: the group is rebalancing."
        case _:
            reason = _lost(state, look) + (_queued(look) if status is Status.QUEUED else _no_consumer(look))
    return status, reason


def no_position(group: str, topic: str) -> str:
    """Return the reason for a topic in which the group has no position."""
    return (
        f"The group has no position in topic '{topic}'. Start a worker of group '{group}', "
        f"or give it a position with `lakelog groups seek {group} {topic}`."
    )


def unreadable(group: Group, topic: str, partition: int, damage: Damage) -> str:
    """Return why damage stops the group, and how to skip the damaged offsets."""
    verb = "seek" if group.kind is GroupKind.CURSOR else "skip"
    return (
        f"Offsets {damage.first} to {damage.end - 1} of topic '{topic}', partition {partition}, cannot be read: the "
        "file of their segment is damaged or missing. Restore the file, and the group continues by itself. If that is "
        "not possible, give these messages up with "
        f"`lakelog groups {verb} {group.name} {topic} --partition {partition} --to {damage.end}`."
    )


def told(error: LakelogError, group: Group, topic: str, partition: int) -> LakelogError:
    """Return the error for consumers of the group.

    An error about damage names the topic, and says how to skip the damage.
    """
    damage = damage_of(error)
    if damage is None:
        return error
    return SegmentDamaged(
        unreadable(group, topic, partition, damage),
        topic=topic,
        partition=partition,
        first_offset=damage.first,
        end_offset=damage.end,
    )


# Parts of the above ---------------------------------------------------------------------------------------------------


def _cursor_status(look: Look) -> Status:
    if look.view.assigned(look.topic, look.partition) is not None:
        return Status.WORKING
    if look.damage is not None:
        return Status.UNREADABLE
    return Status.REBALANCING if look.view.read(look.topic) else Status.NO_CONSUMER


def _is_full(figures: ProgressSummary, group: Group) -> bool:
    return figures.leased + figures.waiting >= group.settings.window


def _has_available(figures: ProgressSummary, look: Look) -> bool:
    """Return whether a consume would get a message now. The caller has checked that every lease has ended."""
    if figures.leased or (figures.due_ms is not None and figures.due_ms <= look.view.now_ms):
        return True
    if _is_full(figures, look.view.group):
        return False
    if figures.has_ready:
        return True
    is_blocked = look.view.group.settings.order is Order.PARTITION and figures.waiting + figures.skipped > 0
    return figures.frontier < look.high_watermark and figures.skipped < LOOK_AHEAD and not is_blocked


def _paused(look: Look) -> str:
    name = look.view.group.name
    if "*" in look.view.group.paused:
        return f"The group is paused. Resume it with `lakelog groups resume {name}`."
    return (
        f"Topic '{look.topic}' is paused for this group. "
        f"Resume it with `lakelog groups resume {name} --topic {look.topic}`."
    )


def _full(state: DeliveryState, look: Look) -> str:
    owners = {lease.owner for lease in state.leases.values() if lease.until_ms > look.view.now_ms}
    window = look.view.group.settings.window
    return (
        f"The window of {_messages(window)} is full: {state.open_count} leased to {_listed(sorted(owners))}, "
        f"{len(state.waiting)} waiting for a retry. More are delivered when some are answered. "
        f"If this is usual, raise the window with `lakelog groups alter {look.view.group.name} --window`."
    )


def _retrying(state: DeliveryState, figures: ProgressSummary, look: Look) -> str:
    count = figures.waiting
    behind = ""
    if look.view.group.settings.order is Order.PARTITION:
        behind = ", and all later messages wait for them (partition order)"
    elif figures.skipped:
        behind = f", and {_messages(figures.skipped)} with the same keys behind them"
    full = f" They fill the window of {look.view.group.settings.window}." if _is_full(figures, look.view.group) else ""
    due = f" The first is due at {_time(figures.due_ms)}." if figures.due_ms is not None else ""
    return f"{_messages(count)} {_verb(count, 'wait')} for a retry{behind}.{full}{due}"


def _lost(state: DeliveryState, look: Look) -> str:
    """Return the reason if the only deliverable messages are those whose lease ended without an answer."""
    if state.leases:
        owners = sorted({lease.owner for lease in state.leases.values()})
        return f"The lease of {_listed(owners)} ended without an answer for {_messages(state.open_count)}. "
    suspects = sum(tally.suspect for offset, tally in state.histories.items() if offset in state.waiting)
    due = state.first_due()
    is_alone = (
        state.frontier >= look.high_watermark and not state.has_ready() and (due is None or due > look.view.now_ms)
    )
    if not suspects or not is_alone:
        return ""
    return (
        f"{_messages(suspects)} lost {_verb(suspects, 'their owner', 'its owner')}: each is delivered alone, "
        f"to an owner that holds nothing else, or after {ALONE_WITHIN_MS // 1000} s together with others. "
    )


def _queued(look: Look) -> str:
    member = look.view.assigned(look.topic, look.partition)
    held = look.view.held
    if member is not None and member in held:
        return f"Assigned to member {member}, which is working on {_work(held[member])}. {_CAPACITY}"
    others = {owner: places for owner, places in held.items() if owner not in _ids(look)}
    if others:
        assigned = f"Assigned to member {member}. " if member is not None else ""
        working = (
            f"Consumers that are not members ({_listed(sorted(others))}) are working on {_work(*others.values())}."
        )
        return f"{assigned}{working} {_CAPACITY}"
    if member is not None:
        holds = f"Assigned to member {member}, which holds no messages of topic '{look.topic}' now"
        return f"{holds} and takes these with its next call."
    return "Not assigned to a member yet; a member takes the partition over with its next heartbeat."


_CAPACITY = (
    "These messages follow when there is capacity. If this is usual, start more workers or raise their concurrency."
)


def _no_consumer(look: Look) -> str:
    name, topic, members = look.view.group.name, look.topic, look.view.members
    if not members:
        leases = "" if look.view.group.kind is GroupKind.CURSOR else f", and no messages of topic '{topic}' are leased"
        return f"The group has no members{leases}. Start a worker of group '{name}'."
    read = sorted({each for member in members for each in member.topics})
    return (
        f"No member reads topic '{topic}'; the members read {_listed(read)}. "
        f"Start a worker of group '{name}' that subscribes to it."
    )


def _ids(look: Look) -> set[str]:
    return {each.member_id for each in look.view.members}


def _work(*held: Mapping[tuple[str, int], int]) -> str:
    places = sorted({place for each in held for place in each})
    count = sum(sum(each.values()) for each in held)
    return f"{_messages(count)} of {_listed([f'{topic}/{partition}' for topic, partition in places])}"


def _listed(names: Sequence[str]) -> str:
    """Return a few of the names, and the number of further names."""
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join([part for part in (", ".join(names[:-1]), *names[-1:]) if part])


def _messages(count: int) -> str:
    return f"{count:,} message{_verb(count, 's', '')}"


def _verb(count: int, many: str, one: str | None = None) -> str:
    return many if count != 1 else f"{many}s" if one is None else one


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
