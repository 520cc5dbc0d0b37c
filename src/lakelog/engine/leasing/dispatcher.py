"""The dispatcher of one group and topic: consumers wait here, and get messages as they become available.

Consumers are served in order of arrival, but a member comes first in its own partitions. A partition is tried only
while it is ready. A repeated call first gets its own lease. The journals keep decisions correct: a dispatcher
whose knowledge is out of date only delivers later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from lakelog.coordinator.leasing.operations import Granted
from lakelog.engine.leasing.journal import Journal
from lakelog.engine.leasing.matcher import Matcher
from lakelog.engine.leasing.matching import (
    Grants,
    LeaseAttempt,
    LeasingContext,
    WaitingConsumer,
    error_of,
    not_loaded,
    repeated_at,
    stop_of_all_partitions,
)
from lakelog.engine.leasing.partition_view import PartitionView
from lakelog.engine.leasing.ready_partitions import ReadyPartitions
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.model.group import Group, GroupTopic
from lakelog.model.message import partition_of_id
from lakelog.model.shard import Shard
from lakelog.model.topic import Topic

SEARCH_TOGETHER_ABOVE = 64
"""The number of partitions above which their journals are read together before a search for leases."""
SEARCHED_TOGETHER = 1000
_LAST_TRY_SECONDS = 10.0


class Dispatcher:
    """Delivers the messages of one topic to one group, in this process."""

    def __init__(self, context: LeasingContext, group: Group, group_topic: GroupTopic, topic: Topic) -> None:
        self._context = context
        self.group = group
        self.group_topic = group_topic
        self.topic = topic
        self._known: tuple[int, int, int, int] | None = None
        self._ready = ReadyPartitions(context, self._serve_soon)
        self._views = self.views = self._ready.views
        self._holders = self._ready.holders
        self._waiting: dict[WaitingConsumer, None] = {}
        self._is_serve_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.used_at = time.monotonic()
        self.refresh(group, group_topic, topic)

    def refresh(self, group: Group, group_topic: GroupTopic, topic: Topic) -> None:
        """Use the group and topic as they are now, and watch new partitions."""
        known = (group.version, group_topic.epoch, topic.version, topic.partitions)
        if known == self._known:
            return
        self._known = known
        self.group, self.group_topic, self.topic = group, group_topic, topic
        for partition in range(topic.partitions):
            journal = self._context.journals.journal(group, group_topic, topic, partition)
            if partition == len(self._views):
                view = PartitionView(journal, self._context.batch_cache, self._context.clocks[journal.cell])
                self._views.append(view)
                self._context.waiters.watch(topic.pid(partition), self._grew)
                self._context.waiters.watch(journal.key, self._journal_changed)
            self._views[partition].journal = journal
            self._ready.mark(partition)

    @property
    def has_waiting(self) -> bool:
        """Return whether a consumer waits."""
        return bool(self._waiting)

    def divide(self, shard: Shard) -> None:
        """Deliver the partitions of this shard first, and leave others to other servers for a while."""
        self._ready.divide(shard)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._tasks

    def close(self) -> None:
        for partition, view in enumerate(self._views):
            self._context.waiters.unwatch(self.topic.pid(partition), self._grew)
            self._context.waiters.unwatch(view.journal.key, self._journal_changed)
        self._ready.close()

    async def lease(self, consumer: WaitingConsumer, seconds: float) -> Grants:
        """Return leases, or none when the time has passed.

        Raise an error if all of the consumer's partitions are stopped.
        """
        grants = await self._wait(consumer, seconds)
        if not grants and seconds <= 0 and not consumer.is_dismissed and not consumer.answered:
            # A call that does not wait gets what any server has appended by now.
            await self._look_for_growth()
            # Another consumer may have looked a moment ago, and this one was not tried with what it found.
            if self._ready.has_any_for(consumer):
                done: asyncio.Future[Grants] = asyncio.get_running_loop().create_future()
                grants = await self._wait(
                    WaitingConsumer(consumer.take, done, own=consumer.own, strict=consumer.strict), 0.0
                )
        if not grants and not consumer.is_dismissed and (error := stop_of_all_partitions(self._views, consumer)):
            raise error
        return grants

    async def _wait(self, consumer: WaitingConsumer, seconds: float) -> Grants:
        self.used_at = time.monotonic()
        self._ready.came(consumer)
        consumer.is_last = seconds <= 0
        self._waiting[consumer] = None
        if consumer.is_repeat or self._holders.has_lease_of(consumer.take):
            self._search(consumer)
        if consumer.answered:
            # In this turn of the loop: operations that are submitted together are decided together, answers first.
            for partition in consumer.answered:
                self._ready.mark_freed(partition)
            self._serve()
        else:
            self._serve_soon()
        try:
            if seconds > 0:
                await asyncio.wait([consumer.done], timeout=seconds)
                if not consumer.done.done():
                    # A running attempt may still succeed.
                    consumer.is_last = True
                    self._serve_soon()
            if not consumer.done.done():
                await asyncio.wait([consumer.done], timeout=_LAST_TRY_SECONDS)
            if consumer.is_attempting and not consumer.done.done():
                raise OutcomeUnknown(
                    "PostgreSQL did not respond in time; repeat the call to get the messages that it leased."
                )
            return consumer.done.result() if consumer.done.done() else []
        finally:
            self._waiting.pop(consumer, None)
            if not consumer.done.done():
                consumer.done.cancel()

    def dismiss(self, consumer: WaitingConsumer) -> None:
        """End the consumer's wait without messages, because the assignment of its member changed."""
        if not consumer.done.done():
            consumer.is_last = consumer.is_dismissed = True
            if not consumer.is_attempting:
                consumer.done.set_result([])

    # Notifications ----------------------------------------------------------------------------------------------------

    def _grew(self, pid: int) -> None:
        self._ready.mark(partition_of_id(pid))

    def _journal_changed(self, key: tuple[int, int]) -> None:
        view = self._views[partition_of_id(key[1])]
        self._holders.read(view.journal.partition)
        for consumer in repeated_at(view, self._waiting):
            self._search(consumer)
        self._ready.mark_committed(view)

    def _search(self, consumer: WaitingConsumer) -> None:
        """Search all partitions for the leases of a repeated call, because the caller must get all of them."""
        consumer.must_search = True
        self._serve_soon()

    def _plan_search(self, consumer: WaitingConsumer, attempts: Sequence[LeaseAttempt]) -> None:
        """Let the consumer search all partitions if it must, except those that it has just tried."""
        if consumer.must_search and not consumer.done.done():
            consumer.must_search = consumer.has_searched = False
            consumer.unsearched = dict.fromkeys(range(len(self._views)))
            for each in attempts:
                consumer.unsearched.pop(each.partition, None)

    def look_again(self) -> None:
        """Try what time or a cell that responds again may have made available."""
        for partition, view in enumerate(self._views):
            if view.journal.state is None:
                self._ready.mark(partition)
        self._ready.mark_due()
        self._serve_soon()

    async def _look_for_growth(self) -> None:
        """Mark the partitions whose log has grown since this dispatcher last checked."""
        refusal: LakelogError | None = None
        for cell, pids in self.topic.pids_by_cell().items():
            if self._context.journals.is_unresponsive(cell):
                continue
            try:
                found = await self._context.batch_cache.ends(cell, pids)
            except LakelogError as error:
                # Other cells may respond.
                refusal = error
                continue
            for partition, ends in found.items():
                if partition < len(self._views) and ends != self._views[partition].ends:
                    self._views[partition].ends = ends
                    self._ready.mark(partition)
        if refusal is not None:
            raise refusal

    # Serving ----------------------------------------------------------------------------------------------------------

    def _serve_soon(self) -> None:
        if not self._is_serve_scheduled and self._waiting:
            self._is_serve_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Start attempts for waiting consumers.

        End the wait of consumers whose time has passed and that have nothing to try.
        """
        self._is_serve_scheduled = False
        for consumer, shares in self._match().items():
            consumer.is_attempting = True
            task = asyncio.get_running_loop().create_task(self._attempt(consumer, shares))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for consumer in self._waiting:
            if not consumer.is_attempting and not consumer.done.done() and not self._ready.has_any_for(consumer):
                consumer.has_waited = True
                if consumer.is_last:
                    consumer.done.set_result([])

    def _attempt(self, consumer: WaitingConsumer, shares: Mapping[int, int]) -> Coroutine[object, object, None]:
        """Return the work of an attempt. It begins now, to share a commit with the answers of the same call."""
        if len(consumer.unsearched) > SEARCH_TOGETHER_ABOVE and not consumer.has_searched:
            return self._search_together(consumer)
        if unloaded := self._not_loaded(consumer, shares):
            return self._load_first(consumer, unloaded, shares)
        return self._finish(consumer, self._begin(consumer, shares))

    async def _search_together(self, consumer: WaitingConsumer) -> None:
        """Read the journals of many partitions together, and search only those that have a lease of the call."""
        consumer.has_searched = True
        began = time.monotonic()
        journals = [self._views[each].journal for each in consumer.unsearched]
        for first in range(0, len(journals), SEARCHED_TOGETHER):
            # An error shows when the remaining partitions are tried one by one.
            with contextlib.suppress(LakelogError):
                await self._context.journals.read(journals[first : first + SEARCHED_TOGETHER])
        # A lease that one of the reads found is among those that are searched.
        consumer.must_search = False
        for partition in list(consumer.unsearched):
            view = self._views[partition]
            is_known = view.journal.state is not None and not view.journal.busy and view.journal.seen_at >= began
            if is_known and not view.has_lease_of(consumer.take):
                del consumer.unsearched[partition]
        await self._finish(consumer, [])

    def _match(self) -> dict[WaitingConsumer, dict[int, int]]:
        """Return which partitions each consumer tries, and for how many messages."""
        waiting = [consumer for consumer in self._waiting if not consumer.is_attempting and not consumer.done.done()]
        if not waiting:
            return {}
        for consumer in waiting:
            self._plan_search(consumer, ())
        # A repeat takes no other messages until it has looked for its leases. Stopped partitions are searched too: that
        # needs no messages.
        searching = {
            consumer: [p for p in consumer.unsearched if not self._ready.is_unresponsive(p)]
            for consumer in waiting
            if consumer.unsearched
        }
        repeats = {consumer: dict.fromkeys(partitions, 0) for consumer, partitions in searching.items() if partitions}
        return repeats | Matcher(self._views, self._ready, self._holders).match(
            [consumer for consumer in waiting if consumer not in repeats]
        )

    def _not_loaded(self, consumer: WaitingConsumer, shares: Mapping[int, int]) -> list[Journal]:
        """Return the journals to load first.

        If one of the shares has no state, these are all journals that the consumer may try.
        """
        if all(not share or self._views[each].journal.state is not None for each, share in shares.items()):
            return []
        others = (each for each in self._ready.of(consumer) if each not in shares)
        return not_loaded(self._views[each] for each in chain(shares, others))

    async def _load_first(
        self, consumer: WaitingConsumer, unloaded: Sequence[Journal], shares: Mapping[int, int]
    ) -> None:
        try:
            await self._context.journals.load(unloaded)
            # A lease may have expired there: the consumer is matched again, now that this is known.
            await self._finish(consumer, [])
        except LakelogError as error:
            known = {each: share for each, share in shares.items() if self._views[each].journal.state is not None}
            await self._finish(consumer, self._begin(consumer, known), error)

    def _begin(self, consumer: WaitingConsumer, shares: Mapping[int, int]) -> list[LeaseAttempt]:
        """Submit one acquire operation per partition."""
        attempts: list[LeaseAttempt] = []
        alone = len(shares) == 1
        messages = self._holders.messages_of(consumer.take.owner)
        for partition, share in shares.items():
            view = self._views[partition]
            held, has_suspect = 0, False
            if share and not consumer.take.isolates:
                held, has_suspect = messages.elsewhere(partition)
            if has_suspect:
                consumer.empty_at[partition] = view.changes
                continue
            view.wanted += share
            self._holders.add(consumer.take.owner, partition)
            # Messages from several partitions are held together.
            take = replace(consumer.take, max_messages=share, held_elsewhere=held if alone else max(held, 1))
            reply = self._context.journals.submit(view.journal, take)
            attempts.append(LeaseAttempt(view, partition, share, view.changes, alone, reply))
        return attempts

    async def _finish(
        self, consumer: WaitingConsumer, attempts: Sequence[LeaseAttempt], refusal: BaseException | None = None
    ) -> None:
        """Wait for the attempts. Answer the consumer if it got leases or was refused."""
        if attempts:
            await asyncio.wait([each.reply for each in attempts])
        consumer.is_attempting = False
        grants: Grants = []
        held = self._holders.messages_of(consumer.take.owner)
        for each in attempts:
            each.view.wanted -= each.share
            consumer.unsearched.pop(each.partition, None)
            if each.reply.exception() is None:
                reply = each.reply.result()
                if each.share:
                    self._ready.mark_attempted(consumer, each, reply, held)
                if isinstance(reply, Granted):
                    grants.append((each.view.journal, reply))
        refusal = error_of(attempts, refusal)
        # Without an attempt, journals were loaded: the group may have moved past what stopped the partitions.
        if not grants and refusal is None and attempts and all(each.reply.exception() for each in attempts):
            refusal = stop_of_all_partitions(self._views, consumer)
        # An answer with some leases would hide one that may have been granted: the repeat gets all of them.
        if grants and not consumer.done.done() and not isinstance(refusal, OutcomeUnknown):
            consumer.done.set_result(grants)
            grants = []
        for journal, granted in grants:
            self._context.journals.release(journal, consumer.take.owner, granted)
        if refusal is not None and not consumer.done.done():
            consumer.done.set_exception(refusal)
        self._plan_search(consumer, attempts)
        self._serve_soon()
