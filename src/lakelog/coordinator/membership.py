"""The members of one group, their assignments, and how partitions move between them.

`step` decides operations that arrived together as one change, so members that join together cause one rebalance. In a
lease group a new assignment applies immediately. In a cursor group a partition that moves is first removed from its
member's assignment (revoked) and promised to the next member. The next member gets it when the first member has
acknowledged that generation, left, or was evicted; other members are not affected. There is no I/O and no clock here:
the caller reads the state with the database's time, and writes the next state only if the version that it read is still
the last.
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
"""Partitions by topic, ascending. Topics without partitions are left out."""
_Partition = tuple[str, int]


class MembershipPhase(StrEnum):
    """Phase of a group's membership. docs/state-machines.md has the diagram."""

    EMPTY = "empty"
    """No members."""
    STABLE = "stable"
    """Every partition has a member."""
    REBALANCING = "rebalancing"
    """Members of a cursor group still have to release partitions."""

    def to(self, other: MembershipPhase) -> MembershipPhase:
        """Return the next phase, or raise if it cannot follow this one.

        A member that joins an empty group waits for no other.
        """
        if self is MembershipPhase.EMPTY and other is MembershipPhase.REBALANCING:
            raise AssertionError("An empty group has no partitions to give up.")
        return other


class Member(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A member. It reads the partitions in `assigned`, still has to release `revoked`, and will get `promised`."""

    member_id: str
    topics: tuple[str, ...]
    host: str
    session_ms: int
    joined_ms: int
    assigned: PartitionsByTopic = {}
    promised: PartitionsByTopic = {}
    revoked: PartitionsByTopic = {}
    fence: int = 0
    """The generation that the member must acknowledge: the last generation that revoked a partition from it."""

    def expires_ms(self, seen_ms: int) -> int:
        """Return when the session expires if the member was last seen at `seen_ms`.

        The slack allows for heartbeats that another server writes a moment later.
        """
        return max(seen_ms, self.joined_ms) + self.session_ms + min(self.session_ms // 8, MAX_SLACK_MS)


class MembershipState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The membership of a group. Members are in the order in which they joined."""

    phase: MembershipPhase = MembershipPhase.EMPTY
    generation: int = 0
    """A number that rises with every change of an assignment."""
    members: dict[str, Member] = {}
    counts: dict[str, int] = {}
    """Number of partitions of each topic that members read or hold."""
    rebalances: int = 0
    """Number of changes of members or topics that changed the assignment."""
    last_rebalance_ms: int | None = None
    waited_ms: int = 0
    """The total time for which partitions waited to be released, in completed rebalances."""
    waiting_since_ms: int | None = None

    def rebalancing_ms(self, now_ms: int) -> int:
        """Return the total time for which partitions waited to be released."""
        return self.waited_ms + (0 if self.waiting_since_ms is None else max(0, now_ms - self.waiting_since_ms))

    def idle(self) -> list[str]:
        """Return the members without a partition, because there are more members than partitions."""
        return [each.member_id for each in self.members.values() if not each.assigned and not each.promised]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Adds a member. An existing member with the same topics keeps its partitions, without a rebalance.

    With `replaces`, all other members leave in the same change, so the new member need not wait for them.
    """

    member_id: str
    topics: Sequence[str]
    session_ms: int
    host: str = ""
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Removes a member and frees its partitions immediately. It does nothing if the member does not exist."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMembers:
    """Removes members whose session expired. A member that is not in `seen_ms` stays: its heartbeat may be lost."""

    seen_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeGeneration:
    """Confirms that the member knows the generation and no longer reads the partitions that it revoked."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanged:
    """Sets the host of a member, which is only shown. It does nothing if the member does not exist."""

    member_id: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """Sets the number of partitions of topics; 0 for a deleted topic."""

    counts: Mapping[str, int]


Operation = JoinGroup | LeaveGroup | EvictMembers | AcknowledgeGeneration | HostChanged | TopicsChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRules:
    """The settings of a group that assignments depend on."""

    kind: GroupKind
    assignor: Assignor = Assignor.COOPERATIVE


def step(
    state: MembershipState, operations: Iterable[Operation], rules: AssignmentRules, now_ms: int
) -> MembershipState:
    """Return the state after these operations, in order. Return the same object if nothing changed."""
    members, counts, others = dict(state.members), dict(state.counts), False
    for operation in operations:
        if isinstance(operation, TopicsChanged):
            counts.update(operation.counts)
        elif isinstance(operation, AcknowledgeGeneration):
            _acknowledge(members, operation, state.generation)
        elif isinstance(operation, HostChanged):
            if operation.member_id in members:
                members[operation.member_id] = replace(members[operation.member_id], host=operation.host)
        else:
            others |= _change(members, operation, now_ms)
    replanned = others or any(counts[topic] != count for topic, count in state.counts.items())
    # Includes topics that no member reads any longer while a member still has to give up partitions of them.
    known = {topic for member in members.values() for topic in (*member.topics, *member.assigned, *member.revoked)}
    counts = {topic: counts.get(topic, 0) for topic in sorted(known)}
    members = _plan(members, counts, rules, state.generation + 1) if replanned else _grant(members)
    if members == state.members and counts == state.counts:
        return state
    return _concluded(state, members, counts, now_ms, replanned)


def _change(members: dict[str, Member], operation: JoinGroup | LeaveGroup | EvictMembers, now_ms: int) -> bool:
    """Apply an operation and return whether the members or their topics changed. Assigns nothing yet."""
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
    """Return whether the session expired. False if the last heartbeat is unknown: a crash may lose heartbeats."""
    return member.member_id in seen_ms and member.expires_ms(seen_ms[member.member_id]) < now_ms


def _plan(
    members: Mapping[str, Member], counts: Mapping[str, int], rules: AssignmentRules, generation: int
) -> dict[str, Member]:
    """Return members with new assignments; in a cursor group only partitions that are free are assigned."""
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
        # Leases fence themselves, so a member may start before another one stops.
        held = {member_id: partitions & wanted[member_id] for member_id, partitions in held.items()}
    return _hand_over(members, held, wanted, generation)


def _hand_over(
    members: Mapping[str, Member],
    held: Mapping[str, set[_Partition]],
    wanted: Mapping[str, set[_Partition]],
    generation: int,
) -> dict[str, Member]:
    """Assign partitions that the member keeps or that are free. Revoke those of other members and promise them."""
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
    """Assign promised partitions that no other member holds any longer."""
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
    """Decode a state. Empty bytes are the state of a group that never had a member."""
    if not body:
        return MembershipState()
    number, _ = _number.decode(body)
    if number != FORMAT:
        raise UnsupportedFormat(f"Membership format {number} is unknown. Upgrade Lakelog.", format=number)
    return _decoder.decode(body)[1]
