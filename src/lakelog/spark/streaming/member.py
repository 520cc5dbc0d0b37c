"""A streaming query as the only member of its cursor group. It joins, commits, and notices if it is replaced.

The member belongs to the driver's Python process. `planning` decides about positions; this module commits them.
"""

from __future__ import annotations

import logging
import threading
import time

from msgspec.structs import replace

from lakelog import Lakelog
from lakelog.client import processes
from lakelog.client._sync.group_member import GroupMember
from lakelog.errors import (
    GroupNotFound,
    LakelogError,
    NoPosition,
    NotOwner,
    PositionRefused,
    StaleGeneration,
    TopicNotFound,
    UnknownMember,
)
from lakelog.model.group import GroupKind
from lakelog.model.membership import JoinRequest, Membership
from lakelog.model.seek import GroupPosition
from lakelog.spark.session import ConnectionSettings
from lakelog.spark.streaming.naming import MemberName
from lakelog.spark.streaming.options import StreamOptions
from lakelog.spark.streaming.planning import Offsets, by_epoch, grown

CLIENT = "spark"
_SURE_SECONDS = 0.01
"""How long a query trusts its generation and epochs after the last call that confirmed them."""
_TRIES = 20

_log = logging.getLogger(__name__)


class StreamMember:
    """The member of one run of a query. Apart from its heartbeat thread, one thread makes all calls."""

    def __init__(self, log: Lakelog, options: StreamOptions) -> None:
        assert options.group is not None
        self.topic, self.name = options.topic, options.group
        self._group = log.group(options.group)
        self._member_id = f"{CLIENT}-{processes.unique_name()}"
        self._request = JoinRequest(
            group=options.group,
            topics=(options.topic,),
            member_id=self._member_id,
            session_ms=options.session_ms,
            client=CLIENT,
            kind=GroupKind.CURSOR,
            start_from="none",
        )
        self._lock = threading.Lock()
        self._has_created = False
        self._member = GroupMember(options.group, self._rejoin, self._heartbeat, self._leave)
        self._positions: dict[int, GroupPosition] = {}
        self._sure_until = 0.0
        self._failure: LakelogError | None = None
        self.is_named = False
        """Whether a task was asked to report the name and the id of the query."""
        self._thread: threading.Thread | None = None

    def begin(self, at: Offsets) -> dict[int, GroupPosition]:
        """Become the only member, and return the group's positions.

        From now on, only this member or a seek changes them.

        A group that has no position in the topic is created with the position `at`, which names every partition.
        """
        self._member.membership = self._join_at(at)
        for _ in range(_TRIES):
            self._positions = dict(self._group.positions(self.topic))
            try:
                # Even without a change: from now on the journal refuses a query that was replaced.
                self._send({partition: position.offset for partition, position in self._positions.items()})
                break
            except PositionRefused:
                # A commit of the replaced query was applied before this one.
                continue
        else:
            raise self._replaced()
        self._thread = threading.Thread(target=self._member.keep_alive, name="lakelog-heartbeat", daemon=True)
        self._thread.start()
        return dict(self._positions)

    def commit(self, offsets: Offsets) -> None:
        """Move the group to these offsets. Call the server only if one of them is new."""
        with self._lock:
            self._check()
            changed = grown(self._positions, offsets)
            if changed:
                self._send_surely(changed)

    def confirm(self) -> None:
        """Raise an error if the query was replaced or a seek moved the group.

        Call the server unless this was just confirmed.
        """
        with self._lock:
            self._check()
            if time.monotonic() >= self._sure_until:
                self._guard()

    @property
    def epochs(self) -> dict[int, int]:
        with self._lock:
            return {partition: position.epoch for partition, position in self._positions.items()}

    def name_by_task(self, connection: ConnectionSettings) -> MemberName:
        """Return what a task needs to report the query to the group."""
        with self._lock:
            self.is_named = True
            return MemberName(
                connection=connection, group=self.name, member_id=self._member_id, generation=self._generation()
            )

    def leave(self) -> None:
        """Leave the group, and end the heartbeats."""
        self._member.leave()

    def withdraw(self) -> None:
        """Leave, and delete the group if this run created it.

        It is for a query that ends before its first micro-batch: a position that it left behind would override the
        start options of the next query.
        """
        self.leave()
        if not self._has_created:
            return
        try:
            found = self._group.describe()
            is_untouched = all(
                each.topic == self.topic
                and GroupPosition(each.partition, each.committed, each.epoch) == self._positions.get(each.partition)
                for each in found.progress
            )
            if is_untouched:
                # The server refuses this if there is another member.
                self._group.delete()
        except LakelogError as error:
            _log.info("Could not delete group '%s', which this query created: %s", self.name, error)

    def _join_at(self, at: Offsets) -> Membership:
        request = replace(self._request, replaces=True)
        try:
            return self._group.join(request)
        except NoPosition:
            # The first commit gives a group its position, in all partitions at once.
            self._group.commit(self.topic, at)
            self._has_created = True
            return self._group.join(request)

    # Under the lock ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _guard(self) -> None:
        self._send_surely({partition: position.offset for partition, position in self._positions.items()})

    def _send_surely(self, offsets: Offsets) -> None:
        try:
            try:
                self._send(offsets)
            except UnknownMember:
                self._come_back()
                self._send(offsets)
        except (StaleGeneration, NotOwner, UnknownMember) as exc:
            self._failure = self._replaced()
            raise self._failure from exc
        except PositionRefused as exc:
            ahead = self._cut(offsets)
            if ahead is None:
                self._failure = self._moved(exc)
                raise self._failure from exc
            self._send_surely(ahead)
        except (GroupNotFound, TopicNotFound) as exc:
            self._failure = exc
            raise

    def _send(self, offsets: Offsets) -> None:
        asked = time.monotonic()
        for epoch, some in by_epoch(offsets, self._positions).items():
            self._group.commit(self.topic, some, member_id=self._member_id, generation=self._generation(), epoch=epoch)
            self._positions.update(
                {partition: GroupPosition(partition, offset, epoch) for partition, offset in some.items()}
            )
        self._sure_until = asked + _SURE_SECONDS

    def _cut(self, offsets: Offsets) -> dict[int, int] | None:
        """Return what is left to commit after retention moved the group; None if something else moved it.

        Another member cannot have moved it, because the commit was not refused for its generation. A seek changes the
        epoch.
        """
        now = self._group.positions(self.topic)
        moved = {each: now[each] for each, known in self._positions.items() if each in now and now[each] != known}
        if not moved or any(
            each.epoch != self._positions[number].epoch or each.offset < self._positions[number].offset
            for number, each in moved.items()
        ):
            return None
        self._positions.update(moved)
        return {number: max(offset, now[number].offset) for number, offset in offsets.items() if number in now}

    def _come_back(self) -> None:
        """Join again after a timeout, unless another query has joined since."""
        if self._group.describe().members:
            raise StaleGeneration()
        membership = self._group.join(self._request)
        if len(membership.assigned.get(self.topic, ())) < len(self._group.positions(self.topic)):
            self._group.leave(self._member_id)
            raise StaleGeneration()
        self._member.membership, self.is_named = membership, False

    def _replaced(self) -> StaleGeneration:
        others = [each for each in self._group.describe().members if each.member_id != self._member_id]
        named = (
            ", ".join(f"{each.member_id} on {each.client_host}" for each in others) or "a member that has left again"
        )
        return StaleGeneration(
            f"This query is no longer the member of group '{self.name}': it was replaced by {named}. A group is read "
            "by one query at a time, the one that started last. Stop one of the two, or use a different group.",
            group=self.name,
            member_id=self._member_id,
        )

    def _moved(self, refusal: PositionRefused) -> PositionRefused:
        now = self._group.positions(self.topic)
        differing = [
            f"partition {partition}: {mine.offset}, the group {now[partition].offset}"
            for partition, mine in sorted(self._positions.items())
            if partition in now and now[partition] != mine
        ]
        return PositionRefused(
            f"Group '{self.name}' was moved by a seek while this query ran ({'; '.join(differing)}), "
            "so the query stopped. To read from the group's position, start the query with a new checkpoint. To "
            f"continue from its checkpoint, move the group back with `lakelog groups seek {self.name} {self.topic}`.",
            **refusal.subject,
        )

    # Its own thread ---------------------------------------------------------------------------------------------------

    def _heartbeat(self, member: Membership) -> Membership:
        with self._lock:
            if self._failure is not None:
                self._member.stop()
                return member
            found = self._group.heartbeat(member.member_id, member.generation)
            if found.revoked:
                # Another member has joined and is to get a part of the partitions. Reading on would accept that.
                self._failure = self._replaced()
                raise self._failure
            self._member.advance(found.generation)
            if time.monotonic() >= self._sure_until:
                self._guard()
            return self._member.membership or found

    def _rejoin(self) -> Membership:
        """Confirm the positions after a timeout. This joins again if no other query has joined."""
        with self._lock:
            self._guard()
            assert self._member.membership is not None
            return self._member.membership

    def _leave(self) -> None:
        self._group.leave(self._member_id)

    def _generation(self) -> int:
        return self._member.membership.generation if self._member.membership is not None else 0
