"""Leases: consume, and the answers of owners. Dispatchers choose consumers, and journals decide."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakelog.coordinator.leasing.operations import AcquireMessages, Granted, ReturnKind, ReturnMessages
from lakelog.engine.changes import topic_number
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.members import Members
from lakelog.engine.groups.reasons import told
from lakelog.engine.leasing.consuming import ConsumeResult, Leased
from lakelog.engine.leasing.dispatcher import Dispatcher
from lakelog.engine.leasing.journal import Journal
from lakelog.engine.leasing.matching import LeasingContext, WaitingConsumer
from lakelog.engine.leasing.partition_stop import concerns_one_partition
from lakelog.engine.leasing.pending_answers import PendingAnswers, check_lease_ms
from lakelog.engine.leasing.watcher import WatchedCaches, Watcher
from lakelog.engine.log.topics import Topics
from lakelog.errors import (
    InvalidRequest,
    LakelogError,
    LeaseLost,
    OutcomeForgotten,
    OutcomeUnknown,
    StaleGeneration,
    TopicNotFound,
)
from lakelog.model import limits
from lakelog.model.group import MAX_OWNER_BYTES, Group, GroupKind, GroupTopic, Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.membership import Membership
from lakelog.model.shard import Shard
from lakelog.model.topic import Scope, Topic

MAX_DISPATCHERS = 2000


@dataclass(frozen=True, slots=True)
class _How:
    """How a consume is served; see `Leases.consume`."""

    repeat: bool
    shard: Shard | None


class Leases:
    """The operations of owners; one per engine."""

    def __init__(self, context: LeasingContext, topics: Topics, directory: GroupDirectory, members: Members) -> None:
        self._context = context
        self._topics = topics
        self._directory = directory
        self._members = members
        self._dispatchers: dict[tuple[int, int], Dispatcher] = {}
        self._watcher = Watcher(
            context, self._dispatchers, WatchedCaches(topics=topics, directory=directory, members=members)
        )

    async def consume(
        self, scope: Scope, request: ConsumeRequest, *, repeat: bool = False, shard: Shard | None = None
    ) -> ConsumeResult:
        """Wait for messages and lease them to the owner. Answers in the call are decided first, in the same commit.

        Args:
            scope: The environment of the topic and the group.
            request: The call.
            repeat: Whether the call was sent before with the same request id, and its reply was lost. The journals are
                then read first, because another server may have granted its leases.
            shard: The part of the topic that this server delivers to the group first. Default: as in the last call.
        """
        _check(request)
        how = _How(repeat, shard)
        if not request.answers:
            return await self._take(scope, request, how, lambda: None)
        try:
            pending = await self._pending_answers(scope, request.topic, request.group, request.owner, request.answers)
        except LakelogError as refusal:
            consumed = await self._take(scope, request, how, lambda: None)
            return replace(consumed, answered=[refusal] * len(request.answers))
        try:
            consumed = await self._take(scope, request, how, pending.submit)
        except OutcomeUnknown:
            # Messages may have been leased: the caller repeats the call to learn about them.
            await pending.outcomes()
            raise
        except LakelogError as refusal:
            # The next call meets the same error; the outcomes of the answers do not wait for it.
            consumed = ConsumeResult(topic=pending.topic, group=pending.group, leases=[], refusal=refusal)
        return replace(consumed, answered=await pending.outcomes())

    async def _take(self, scope: Scope, request: ConsumeRequest, how: _How, begin: Callable[[], None]) -> ConsumeResult:
        """Lease messages.

        Repeat this if the topic was recreated. `begin` runs in the loop iteration that starts the search.
        """
        # The outcomes of answers do not wait for messages.
        deadline = 0.0 if request.answers else time.monotonic() + request.wait_ms / 1000
        while True:
            topic = await self._topics.find(scope, request.topic)
            try:
                seconds = max(0.0, deadline - time.monotonic())
                consumed = await self._consume(topic, request, how, seconds, begin)
                if consumed is not None:
                    return consumed
                # Retention had deleted everything that was leased; its new log start is known now.
            except TopicNotFound:
                if (await self._topics.refresh(scope, request.topic)).incarnation == topic.incarnation:
                    # The topic exists, but its heads are missing: its creator died in between.
                    await self._topics.ensure_heads(topic)

    async def _consume(
        self, topic: Topic, request: ConsumeRequest, how: _How, seconds: float, begin: Callable[[], None]
    ) -> ConsumeResult | None:
        """Lease messages once. Return None if retention had deleted all leased messages."""
        group = await self._directory.resolve(topic.scope, request.group, request, kind=GroupKind.LEASE, create=True)
        group_topic = await self._directory.group_topic(group, topic, request)
        dispatcher = self._dispatcher(group, group_topic, topic)
        if how.shard is not None:
            dispatcher.divide(how.shard)
        member = await self._member(group, request)
        own: frozenset[int] = frozenset(member.assigned.get(topic.name, ())) if member else frozenset()
        consumer = WaitingConsumer(
            AcquireMessages(
                owner=request.owner,
                max_messages=request.max_messages,
                lease_ms=request.lease_ms,
                request=request.request_id or "",
                isolates=request.isolates,
                generation=member.generation if member else None,
            ),
            asyncio.get_running_loop().create_future(),
            own=own,
            strict=member is not None and group.settings.order is Order.PARTITION,
            is_repeat=how.repeat and request.request_id is not None,
            answered=frozenset(each.partition for each in request.answers if each.partition < topic.partitions),
        )
        watched = self._watch(group, dispatcher, consumer, member)
        self._watcher.wake()
        begin()
        try:
            grants = await dispatcher.lease(consumer, seconds)
        finally:
            watched()
        if member is not None:
            member = await self._members.membership(group, member.member_id)
        found = [await self._leased(journal, granted, request.owner) for journal, granted in grants]
        leases = [lease for lease in found if lease is not None and lease.offsets]
        if grants and not leases:
            return None
        generation = member.generation if member else None
        return ConsumeResult(
            topic=topic, group=group, leases=leases, generation=generation, has_waited=consumer.has_waited
        )

    async def answer(
        self,
        scope: Scope,
        topic: str,
        group: str,
        owner: str,
        answers: Sequence[LeaseAnswer],
        *,
        generation: int | None = None,
    ) -> list[Answered | LakelogError]:
        """Decide the owner's answers about its leases. Return one outcome for each answer, in order."""
        _check_owner(owner)
        pending = await self._pending_answers(scope, topic, group, owner, answers, generation)
        return await pending.outcomes()

    async def _pending_answers(
        self,
        scope: Scope,
        topic: str,
        group: str,
        owner: str,
        answers: Sequence[LeaseAnswer],
        generation: int | None = None,
    ) -> PendingAnswers:
        if any(each.once for each in answers):
            check_level(self._directory.level, FeatureLevel.THIRD, "Answers with `once`")
        found = await self._topics.find(scope, topic, partition=max((each.partition for each in answers), default=0))
        its = await self._directory.resolve(scope, group, kind=GroupKind.LEASE, create=False)
        group_topic = await self._directory.group_topic(its, found)
        taken = await self._taken_values(its, found, answers)
        return PendingAnswers(self._context.journals, found, its, group_topic, owner, answers, generation, taken)

    async def _taken_values(self, group: Group, topic: Topic, answers: Sequence[LeaseAnswer]) -> frozenset[bytes]:
        """Return the values that answers want to filter and of which the group has accepted a run.

        Each cell remembers the values of its own partitions.
        """
        wanted: dict[int, set[bytes]] = {}
        for each in answers:
            if each.verb is Verb.FILTER_REPEATS and each.partition < topic.partitions:
                wanted.setdefault(topic.cells[each.partition], set()).update(each.value_hashes().values())
        found = [
            await self._context.cells[cell].groups.once_find(group.group_id, topic.incarnation, values)
            for cell, values in wanted.items()
        ]
        return frozenset().union(*found)

    # Dispatchers ------------------------------------------------------------------------------------------------------

    def _dispatcher(self, group: Group, group_topic: GroupTopic, topic: Topic) -> Dispatcher:
        key = (group.group_id, topic.incarnation)
        dispatcher = self._dispatchers.get(key)
        if dispatcher is None:
            self._evict_idle()
            dispatcher = self._dispatchers[key] = Dispatcher(self._context, group, group_topic, topic)
        dispatcher.refresh(group, group_topic, topic)
        return dispatcher

    async def _renew(self, group: Group, dispatcher: Dispatcher) -> Group:
        """Update the dispatcher to the current group and topic, and return the group."""
        now = await self._directory.resolve(group.scope, group.name, create=False)
        topic = dispatcher.topic
        with contextlib.suppress(TopicNotFound):
            found = await self._topics.find(topic.scope, topic.name)
            # A consumer of a deleted topic gets its error from the store.
            topic = found if found.incarnation == topic.incarnation else topic
        dispatcher.refresh(now, await self._directory.group_topic(now, topic), topic)
        return now

    def _evict_idle(self) -> None:
        if len(self._dispatchers) < MAX_DISPATCHERS:
            return
        idle = sorted((dispatcher.used_at, key) for key, dispatcher in self._dispatchers.items() if dispatcher.is_idle)
        for _, key in idle[: MAX_DISPATCHERS // 10]:
            self._dispatchers.pop(key).close()

    def drop(self, cell: int) -> None:
        """Forget what was read of the cell, because its data was replaced."""
        self._watcher.drop(cell)

    def close(self) -> None:
        self._watcher.close()
        for dispatcher in self._dispatchers.values():
            dispatcher.close()

    # Members ----------------------------------------------------------------------------------------------------------

    async def _member(self, group: Group, request: ConsumeRequest) -> Membership | None:
        if request.member_id is None:
            return None
        self._members.seen(group, request.member_id)
        member = await self._members.membership(group, request.member_id, at_least=request.generation)
        if request.generation is not None and request.generation < member.generation:
            raise StaleGeneration(
                f"The group is at generation {member.generation}; send a heartbeat, then call with that generation.",
                generation=member.generation,
            )
        return member

    def _watch(
        self, group: Group, dispatcher: Dispatcher, consumer: WaitingConsumer, member: Membership | None
    ) -> Callable[[], None]:
        """Apply changes of the group while the consumer waits. End the wait if its assignment changes."""
        tasks: dict[asyncio.Task[None], None] = {}

        async def look() -> None:
            now = await self._renew(group, dispatcher)
            if member is not None:
                present = await self._members.membership(now, member.member_id)
                if present.assigned != member.assigned:
                    dispatcher.dismiss(consumer)
                else:
                    # The rebalance does not concern this member.
                    consumer.take = replace(consumer.take, generation=present.generation)

        def changed(_: int) -> None:
            task = asyncio.get_running_loop().create_task(look())
            tasks[task] = None
            task.add_done_callback(_ended(tasks, dispatcher, consumer))

        keys = (-group.group_id, topic_number(dispatcher.topic.incarnation))
        for key in keys:
            self._context.waiters.watch(key, changed)
        if not self._directory.is_current(group):
            # It changed before the watch began.
            changed(0)

        def stop() -> None:
            for key in keys:
                self._context.waiters.unwatch(key, changed)
            for task in tasks:
                task.cancel()

        return stop

    # Answers ----------------------------------------------------------------------------------------------------------

    async def _leased(self, journal: Journal, granted: Granted, owner: str) -> Leased | None:
        """Return the lease with its batches. If the batches cannot be read, release the lease and return None."""
        offsets: Sequence[int] = granted.offsets
        try:
            pieces = await self._context.batch_cache.pieces(journal.topic, journal.partition, offsets)
            if sum(len(piece.offsets) for piece in pieces) < len(offsets):
                offsets = [offset for piece in pieces for offset in piece.offsets]
                await self._cut(journal, owner, granted, offsets)
        except (LeaseLost, OutcomeForgotten):
            return None
        except BaseException as error:
            self._context.journals.release(journal, owner, granted)
            if not isinstance(error, LakelogError) or not concerns_one_partition(error):
                raise
            self._context.journals.stop(journal, told(error, journal.group, journal.topic.name, journal.partition))
            return None
        return Leased(
            token=granted.token,
            partition=journal.partition,
            expires_ms=granted.until_ms,
            suspect=granted.suspect,
            offsets=offsets,
            deliveries=granted.deliveries,
            failures=granted.failures,
            pieces=pieces,
        )

    async def _cut(self, journal: Journal, owner: str, granted: Granted, readable: Sequence[int]) -> None:
        """Release the messages of a lease that retention has deleted; they are counted as cut.

        This happens before the owner receives the lease: while these messages are open, the owner could not ack a later
        message of the same key.
        """
        left = sorted(set(granted.offsets) - set(readable))
        ranges = [(offset, offset + 1) for offset in left]
        await self._context.journals.ask(
            journal, ReturnMessages(owner=owner, token=granted.token, ranges=ranges, kind=ReturnKind.RELEASE)
        )


def _ended(
    tasks: dict[asyncio.Task[None], None], dispatcher: Dispatcher, consumer: WaitingConsumer
) -> Callable[[asyncio.Task[None]], None]:
    def ended(task: asyncio.Task[None]) -> None:
        tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            # The group or the member is gone: the next call gets the error.
            dispatcher.dismiss(consumer)

    return ended


def _check(request: ConsumeRequest) -> None:
    """Raise an error for limits that the types do not have, and for all limits if no server decoded the request."""
    _check_owner(request.owner)
    check_lease_ms(request.lease_ms)
    if not 1 <= request.max_messages <= limits.MAX_BATCH_MESSAGES:
        raise InvalidRequest(f"`max_messages` must be from 1 to {limits.MAX_BATCH_MESSAGES}.")
    if not 0 <= request.wait_ms <= limits.MAX_WAIT_MS:
        raise InvalidRequest(f"`wait_ms` must be from 0 to {limits.MAX_WAIT_MS}.")
    if request.request_id is not None and not 0 < len(request.request_id.encode()) <= MAX_OWNER_BYTES:
        raise InvalidRequest(f"A request id must have 1 to {MAX_OWNER_BYTES} bytes.")
    if request.member_id is not None and not 0 < len(request.member_id.encode()) <= MAX_OWNER_BYTES:
        raise InvalidRequest(f"A member id must have 1 to {MAX_OWNER_BYTES} bytes.")


def _check_owner(owner: str) -> None:
    if not 0 < len(owner.encode()) <= MAX_OWNER_BYTES or not owner.isprintable():
        raise InvalidRequest(f"`owner` must be 1 to {MAX_OWNER_BYTES} bytes of printable text that names the consumer.")
