"""The members of one group: who there is, what each is to read, and how partitions pass from one to another.

`step` decides all that arrived together as one change: many who join at once cause one rebalance. In a lease group a
new assignment holds at once. In a cursor group a partition that moves is first taken from its member's assignment
(revoked), and promised to the next one, who gets it when the first has acknowledged that generation, left, or was
evicted; nobody else notices. No I/O and no clock here: the caller reads the state with the database's time, and writes
the next one only if the version that it has read is still the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lakelog.coordinator.assignors import POLICIES
from lakelog.errors import UnsupportedFormat
from lakelog.model.group import Assignor, GroupKind

FORMAT = 1
MAX_SLACK_MS = 1000

PartitionsByTopic = dict[str, list[int]]
"""Partitions by topic, ascending; no topic without any."""
_Partition = tuple[str, int]


class MembershipPhase(StrEnum):
    """How a group stands. Drawn in docs/state-machines.md."""

    EMPTY = "empty"
    """No members."""
    STABLE = "stable"
    """Every partition has its member."""
    REBALANCING = "rebalancing"
    """Partitions of a cursor group are still to be given up."""

    def to(self, other: MembershipPhase) -> MembershipPhase:
        """The other one, if it may follow this one. Who joins an empty group has nobody to wait for."""
        if self is MembershipPhase.EMPTY and other is MembershipPhase.REBALANCING:
            raise AssertionError("An empty group has nothing to be given up.")
        return other


class Member(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`assigned` is what it is to read, `revoked` what it has still to give up, `promised` what it will get."""

    member_id: str
    topics: tuple[str, ...]
    host: str
    session_ms: int
    joined_ms: int
    assigned: PartitionsByTopic = {}
    promised: PartitionsByTopic = {}
    revoked: PartitionsByTopic = {}
    fence: int = 0
    """The generation that it has to acknowledge: the one in which it was last told to give something up."""

    def expires_ms(self, seen_ms: int) -> int:
        """When its session is over, if it was last seen then.

        That it was seen is written a moment later, by a server that may be another one: hence the slack.
        """
        return max(seen_ms, self.joined_ms) + self.session_ms + min(self.session_ms // 8, MAX_SLACK_MS)


class MembershipState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All that is kept of a group's membership. Members stand in the order in which they joined."""

    phase: MembershipPhase = MembershipPhase.EMPTY
    generation: int = 0
    """Rises with every change of what anyone is assigned."""
    members: dict[str, Member] = {}
    counts: dict[str, int] = {}
    """How many partitions the topics have that members read or hold."""
    rebalances: int = 0
    """How often members or topics changed such that the assignment did."""
    last_rebalance_ms: int | None = None
    waited_ms: int = 0
    """How long, in the rebalances that are over, partitions waited to be given up."""
    waiting_since_ms: int | None = None

    def rebalancing_ms(self, now_ms: int) -> int:
        """How long, in all, partitions waited to be given up."""
        return self.waited_ms + (0 if self.waiting_since_ms is None else max(0, now_ms - self.waiting_since_ms))

    def idle(self) -> list[str]:
        """Who has no partition, and will not get one: there are more members than partitions."""
        return [each.member_id for each in self.members.values() if not each.assigned and not each.promised]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member that is there already, and reads the same, keeps its place and its partitions: no rebalance.

    `replaces`: all others leave in the same change, so that nobody has to be waited for.
    """

    member_id: str
    topics: Sequence[str]
    session_ms: int
    host: str = ""
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """What it had is free at once. Harmless if there is no such member."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMembers:
    """Members whose session is over leave. One that is not in `seen_ms` stays: that it was seen may have been lost."""

    seen_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeGeneration:
    """The member has heard of that generation, and reads no longer what was revoked in it."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """So many partitions these topics have; 0 for a topic that is gone."""

    counts: Mapping[str, int]


Operation = JoinGroup | LeaveGroup | EvictMembers | AcknowledgeGeneration | TopicsChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRules:
    """What the group's settings say about its members."""

    kind: GroupKind
    assignor: Assignor = Assignor.COOPERATIVE


def step(
    state: MembershipState, operations: Iterable[Operation], rules: AssignmentRules, now_ms: int
) -> MembershipState:
    """The state after these operations, in their order. The very same object if they change nothing."""
    members, counts, others = dict(state.members), dict(state.counts), False
    for operation in operations:
        if isinstance(operation, TopicsChanged):
            counts.update(operation.counts)
        elif isinstance(operation, AcknowledgeGeneration):
            _acknowledge(members, operation, state.generation)
        else:
            others |= _change(members, operation, now_ms)
    replanned = others or any(counts[topic] != count for topic, count in state.counts.items())
    # Also of a topic that nobody reads any longer, as long as somebody has to give it up: it is not free before.
    known = {topic for member in members.values() for topic in (*member.topics, *member.assigned, *member.revoked)}
    counts = {topic: counts.get(topic, 0) for topic in sorted(known)}
    members = _plan(members, counts, rules, state.generation + 1) if replanned else _grant(members)
    if members == state.members and counts == state.counts:
        return state
    return _concluded(state, members, counts, now_ms, replanned)


def _change(members: dict[str, Member], operation: JoinGroup | LeaveGroup | EvictMembers, now_ms: int) -> bool:
    """Whether there are other members afterwards, or they read other topics. Not yet who gets what."""
    match operation:
        case JoinGroup():
            return _join(members, operation, now_ms)
        case LeaveGroup(member_id=member_id):
            return members.pop(member_id, None) is not None
        case EvictMembers(seen_ms=seen_ms):
            over = [each.member_id for each in members.values() if is_expired(each, seen_ms, now_ms)]
            for member_id in over:
                del members[member_id]
            return bool(over)


def _join(members: dict[str, Member], join: JoinGroup, now_ms: int) -> bool:
    topics = tuple(sorted(set(join.topics)))
    replaced = members.keys() - {join.member_id} if join.replaces else ()
    for member_id in replaced:
        del members[member_id]
    present = members.get(join.member_id)
    if present is None:
        members[join.member_id] = Member(
            member_id=join.member_id, topics=topics, host=join.host, session_ms=join.session_ms, joined_ms=now_ms
        )
        return True
    members[join.member_id] = replace(present, topics=topics, host=join.host, session_ms=join.session_ms)
    return present.topics != topics or bool(replaced)


def _acknowledge(members: dict[str, Member], operation: AcknowledgeGeneration, last: int) -> None:
    member = members.get(operation.member_id)
    if member is not None and member.revoked and member.fence <= operation.generation <= last:
        members[member.member_id] = replace(member, revoked={})


def is_expired(member: Member, seen_ms: Mapping[str, int], now_ms: int) -> bool:
    """Whether its session is over. Not if it is unknown when it was seen: that table may be lost in a crash."""
    return member.member_id in seen_ms and member.expires_ms(seen_ms[member.member_id]) < now_ms


def _plan(
    members: Mapping[str, Member], counts: Mapping[str, int], rules: AssignmentRules, generation: int
) -> dict[str, Member]:
    """Everyone's new share; in a cursor group only as far as it is free."""
    existing = {(topic, n) for topic, count in counts.items() for n in range(count)}
    held = {
        each.member_id: existing & (_partitions(each.assigned) | _partitions(each.revoked)) for each in members.values()
    }
    target = POLICIES[rules.assignor](
        {member.member_id: member.topics for member in members.values()},
        counts,
        {member_id: _share(partitions) for member_id, partitions in held.items()},
    )
    wanted = {member_id: _partitions(share) for member_id, share in target.items()}
    if rules.kind is GroupKind.LEASE:
        # Leases fence themselves: nobody has to stop before another may begin.
        held = {member_id: partitions & wanted[member_id] for member_id, partitions in held.items()}
    return _hand_over(members, held, wanted, generation)


def _hand_over(
    members: Mapping[str, Member],
    held: Mapping[str, set[_Partition]],
    wanted: Mapping[str, set[_Partition]],
    generation: int,
) -> dict[str, Member]:
    """What a member keeps, or nobody holds, is assigned; what another one holds is promised, and revoked there."""
    taken: set[_Partition] = set().union(*held.values())
    planned: dict[str, Member] = {}
    for member_id, member in members.items():
        mine, target = held[member_id], wanted[member_id]
        revoked = mine - target
        planned[member_id] = replace(
            member,
            assigned=_share(target - (taken - mine)),
            promised=_share(target & (taken - mine)),
            revoked=_share(revoked),
            fence=generation if revoked - _partitions(member.revoked) else member.fence,
        )
    return planned


def _grant(members: Mapping[str, Member]) -> dict[str, Member]:
    """Promises come true where nobody holds the partition any longer."""
    held: set[_Partition] = set().union(*(_partitions(member.revoked) for member in members.values()))
    granted: dict[str, Member] = {}
    for member_id, member in members.items():
        promised = _partitions(member.promised)
        free = promised - held
        granted[member_id] = member
        if free:
            assigned = _share(_partitions(member.assigned) | free)
            granted[member_id] = replace(member, assigned=assigned, promised=_share(promised - free))
    return granted


def _concluded(
    state: MembershipState, members: dict[str, Member], counts: dict[str, int], now_ms: int, replanned: bool
) -> MembershipState:
    moved = _assigned(members) != _assigned(state.members)
    waits = any(member.revoked for member in members.values())
    phase = MembershipPhase.REBALANCING if waits else MembershipPhase.STABLE if members else MembershipPhase.EMPTY
    return MembershipState(
        phase=state.phase.to(phase),
        generation=state.generation + moved,
        members=members,
        counts=counts,
        rebalances=state.rebalances + (moved and replanned),
        last_rebalance_ms=now_ms if moved else state.last_rebalance_ms,
        waited_ms=state.waited_ms if waits else state.rebalancing_ms(now_ms),
        waiting_since_ms=(now_ms if state.waiting_since_ms is None else state.waiting_since_ms) if waits else None,
    )


def _assigned(members: Mapping[str, Member]) -> dict[str, PartitionsByTopic]:
    return {member.member_id: member.assigned for member in members.values() if member.assigned}


def _partitions(share: Mapping[str, Iterable[int]]) -> set[_Partition]:
    return {(topic, n) for topic, ns in share.items() for n in ns}


def _share(partitions: Iterable[_Partition]) -> PartitionsByTopic:
    share: PartitionsByTopic = {}
    for topic, n in sorted(partitions):
        share.setdefault(topic, []).append(n)
    return share


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, MembershipState])
_number = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def encode(state: MembershipState) -> bytes:
    return _encoder.encode((FORMAT, state))


def decode(body: bytes) -> MembershipState:
    """The state of these bytes; of none at all, the one of a group that never had a member."""
    if not body:
        return MembershipState()
    number, _ = _number.decode(body)
    if number != FORMAT:
        raise UnsupportedFormat(f"Membership format {number} is not known; upgrade Lakelog.", format=number)
    return _decoder.decode(body)[1]
