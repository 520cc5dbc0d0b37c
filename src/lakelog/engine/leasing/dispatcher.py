"""The desk of one group and topic: those who ask for messages stand in line, and are served as messages come.

First ask, first served; but a member comes first where the partition is its own. A partition is tried only when there
may be something: it grew, a retry is due, a lease expired, a key became free. A repeated call is tried first where its
own lease is, or may be. Correctness is the ledgers' business: a desk that knows too little only hands out later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lakelog.coordinator.leasing import Granted, Reply
from lakelog.engine.leasing.journal import Journal
from lakelog.engine.leasing.matching import (
    Grants,
    LeaseAttempt,
    LeasingContext,
    Matcher,
    PartitionView,
    WaitingConsumer,
    error_of,
    held_elsewhere,
    may_get_suspect,
    not_loaded,
    repeated_at,
    stop_of_all_partitions,
)
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.model.group import Group, GroupTopic
from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic

POLL_SECONDS = 1.0
"""So often a desk with a line looks for what other processes did, in case no announcement came."""
REFRESH_SECONDS = 5.0
"""So often it looks whether the group was altered, in case that announcement was lost."""
_LAST_TRY_SECONDS = 10.0


class Dispatcher:
    """Hands out the messages of one topic to one group, in this process."""

    def __init__(self, context: LeasingContext, topic: Topic, renew: Callable[[Dispatcher], Awaitable[object]]) -> None:
        """`renew` looks how the group is now, and calls `refresh`."""
        self._context = context
        self.topic = topic
        self._renew = renew
        self._known: tuple[int, int, int] | None = None
        self._views: list[PartitionView] = []
        self._ready: dict[int, None] = {}
        self._due_first: dict[int, None] = {}
        """Hot partitions where a lease is over, or a retry is due."""
        self._members: dict[int, WaitingConsumer] = {}
        """Who asked last for the member that a partition is assigned to."""
        self._waiting: dict[WaitingConsumer, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._polling: asyncio.Task[None] | None = None
        self._is_serve_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.used_at = time.monotonic()

    def refresh(self, group: Group, group_topic: GroupTopic, topic: Topic) -> None:
        """The group, reading and topic as they are now; new partitions are watched from here on."""
        known = (group.version, group_topic.epoch, topic.partitions)
        if known == self._known:
            return
        self._known = known
        self.topic = topic
        for partition in range(topic.partitions):
            journal = self._context.journals.journal(group, group_topic, topic, partition)
            if partition == len(self._views):
                self._views.append(
                    PartitionView(journal, self._context.batch_cache, self._context.clocks[journal.cell])
                )
                self._context.waiters.watch(topic.pid(partition), self._grew)
                self._context.waiters.watch(journal.key, self._journal_changed)
            self._views[partition].journal = journal
            self._mark_ready(partition)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._tasks

    def close(self) -> None:
        for partition, view in enumerate(self._views):
            self._context.waiters.unwatch(self.topic.pid(partition), self._grew)
            self._context.waiters.unwatch(view.journal.key, self._journal_changed)
        for handle in (self._timer, self._polling):
            if handle is not None:
                handle.cancel()

    async def lease(self, consumer: WaitingConsumer, seconds: float) -> Grants:
        """Messages, or nothing when the time has passed; refused if all of the ask's partitions are stopped."""
        grants = await self._lease_or_nothing(consumer, seconds)
        if not grants and not consumer.is_dismissed and (error := stop_of_all_partitions(self._views, consumer)):
            raise error
        return grants

    async def _lease_or_nothing(self, consumer: WaitingConsumer, seconds: float) -> Grants:
        """Who does not wait gets what any server has taken in by now."""
        grants = await self._wait(consumer, seconds)
        if grants or seconds > 0 or consumer.is_dismissed or consumer.answered:
            return grants
        await self._look_for_growth()
        # Or somebody else looked a moment ago, and this one was not tried with what that one found.
        if not self._has_ready_for(consumer):
            return grants
        again = WaitingConsumer(
            consumer.take, asyncio.get_running_loop().create_future(), own=consumer.own, strict=consumer.strict
        )
        return await self._wait(again, 0.0)

    async def _wait(self, consumer: WaitingConsumer, seconds: float) -> Grants:
        self.used_at = time.monotonic()
        self._members.update(dict.fromkeys(consumer.own, consumer))
        consumer.is_last = seconds <= 0
        self._waiting[consumer] = None
        if consumer.is_repeat or any(view.has_lease_of(consumer.take) for view in self._views):
            self._search(consumer)
        if consumer.answered:
            self._serve_with_answers(consumer)
        else:
            self._serve_soon()
        self._ensure_polling()
        try:
            if seconds > 0:
                await asyncio.wait([consumer.done], timeout=seconds)
                if not consumer.done.done():
                    # What is being tried for it now may still come.
                    consumer.is_last = True
                    self._serve_soon()
            if not consumer.done.done():
                await asyncio.wait([consumer.done], timeout=_LAST_TRY_SECONDS)
            if consumer.is_attempting and not consumer.done.done():
                raise OutcomeUnknown("PostgreSQL did not answer in time; what it leased comes with the repeat.")
            return consumer.done.result() if consumer.done.done() else []
        finally:
            self._waiting.pop(consumer, None)
            if not consumer.done.done():
                consumer.done.cancel()

    def dismiss(self, consumer: WaitingConsumer) -> None:
        """Ends an ask with nothing: its member's assignment changed."""
        if not consumer.done.done():
            consumer.is_last = consumer.is_dismissed = True
            if not consumer.is_attempting:
                consumer.done.set_result([])

    # What happens -----------------------------------------------------------------------------------------------------

    def _grew(self, pid: int) -> None:
        self._mark_ready(partition_of_id(pid))

    def _mark_ready(self, partition: int) -> None:
        self._views[partition].changes += 1
        self._ready[partition] = None
        self._serve_soon()

    def _mark_due(self, partition: int) -> None:
        self._due_first[partition] = None
        self._mark_ready(partition)

    def _journal_changed(self, key: tuple[int, int]) -> None:
        """After a commit, keys may be free, and a retry may be due earlier than anything else."""
        view = self._views[partition_of_id(key[1])]
        journal = view.journal
        if (state := journal.state) is None:
            # Dropped: it has to be read again.
            return self._mark_ready(journal.partition)
        for consumer in repeated_at(view, self._waiting):
            self._search(consumer)
        in_ms = view.due_in_ms()
        if in_ms is not None and in_ms <= 0:
            self._mark_due(journal.partition)
            return
        if state.has_ready() or self._context.batch_cache.backlog(journal.pid, state.frontier):
            self._mark_ready(journal.partition)
        if in_ms is not None:
            self._arm(in_ms)

    def _search(self, consumer: WaitingConsumer) -> None:
        """Looks for the leases of a repeat in all partitions: with only some of them, the others would stay unknown."""
        consumer.unsearched = dict.fromkeys(range(len(self._views)))
        self._serve_soon()

    def _arm(self, in_ms: int) -> None:
        """Makes sure that somebody looks when that time has come."""
        at = time.monotonic() + in_ms / 1000 + 0.001
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(at - time.monotonic(), self._on_timer)

    def _on_timer(self) -> None:
        """Heats the partitions where a time has come, and waits for the next."""
        self._timer = None
        later: list[int] = []
        for partition, view in enumerate(self._views):
            in_ms = view.due_in_ms()
            if in_ms is None:
                continue
            if in_ms <= 0:
                self._mark_due(partition)
            else:
                later.append(in_ms)
        if later:
            self._arm(min(later))

    def _ensure_polling(self) -> None:
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        """While somebody waits: what did others do, and did the log grow, in case nobody said so?"""
        renewed = time.monotonic()
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            if not self._waiting:
                return
            stale = time.monotonic() - POLL_SECONDS
            if time.monotonic() > renewed + REFRESH_SECONDS:
                renewed = time.monotonic()
                with contextlib.suppress(LakelogError):
                    await self._renew(self)
            with contextlib.suppress(LakelogError):
                await self._context.journals.refresh([p.journal for p in self._views if p.journal.seen_at < stale])
            with contextlib.suppress(LakelogError):
                await self._look_for_growth()
            for partition, view in enumerate(self._views):
                if view.journal.state is None:
                    self._mark_ready(partition)
            self._on_timer()
            # A cell may answer again.
            self._serve_soon()

    async def _look_for_growth(self) -> None:
        """Where the log reaches further than this desk knew: the shelf may know it already, from another group."""
        refusal: LakelogError | None = None
        for cell, pids in self.topic.pids_by_cell().items():
            if self._context.journals.is_unresponsive(cell):
                continue
            try:
                found = await self._context.batch_cache.ends(cell, pids)
            except LakelogError as error:
                # Others may answer.
                refusal = error
                continue
            for partition, ends in found.items():
                if partition < len(self._views) and ends != self._views[partition].ends:
                    self._views[partition].ends = ends
                    self._mark_ready(partition)
        if refusal is not None:
            raise refusal

    # Serving ----------------------------------------------------------------------------------------------------------

    def _serve_soon(self) -> None:
        if not self._is_serve_scheduled and self._waiting:
            self._is_serve_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve_with_answers(self, consumer: WaitingConsumer) -> None:
        """At once: what is submitted in the same turn of the loop is decided together, answers first."""
        for partition in consumer.answered:
            if partition not in self._ready and self._views[partition].may_be_freed():
                self._mark_ready(partition)
        self._serve()

    def _serve(self) -> None:
        """Matches hot partitions with those in line; who waits no longer and has nothing to try gets nothing."""
        self._is_serve_scheduled = False
        for consumer, shares in self._match().items():
            consumer.is_attempting = True
            not_loaded_journals = self._not_loaded(consumer, shares)
            trying = (
                self._load_then_match(consumer, not_loaded_journals, shares)
                if not_loaded_journals
                else self._finish_attempts(consumer, self._begin_all(consumer, shares))
            )
            task = asyncio.get_running_loop().create_task(trying)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for consumer in self._waiting:
            if not consumer.is_attempting and not consumer.done.done() and not self._has_ready_for(consumer):
                consumer.has_waited = True
                if consumer.is_last:
                    consumer.done.set_result([])

    def _match(self) -> dict[WaitingConsumer, dict[int, int]]:
        """Who tries which partitions, and for how many messages."""
        waiting = [consumer for consumer in self._waiting if not consumer.is_attempting and not consumer.done.done()]
        if not waiting:
            return {}
        # Repeats look for their leases: no other messages are taken for them until that is done.
        # A partition that is stopped is searched too: that needs its progress alone.
        searching = {
            consumer: [p for p in consumer.unsearched if not self._is_unresponsive(p)]
            for consumer in waiting
            if consumer.unsearched
        }
        repeats = {consumer: dict.fromkeys(partitions, 0) for consumer, partitions in searching.items() if partitions}
        # First where an owner was lost: among many partitions, their turns would come too late for what it held.
        ready = [each for each in {**self._due_first, **self._ready} if self._is_open(each)]
        return repeats | Matcher(self._views, ready, self._members).match(
            [consumer for consumer in waiting if consumer not in repeats]
        )

    def _has_ready_for(self, consumer: WaitingConsumer) -> bool:
        return any(
            consumer.empty_at.get(partition) != self._views[partition].changes
            for partition in self._ready_for(consumer)
        )

    def _ready_for(self, consumer: WaitingConsumer) -> Iterator[int]:
        return (each for each in self._ready if (not consumer.strict or each in consumer.own) and self._is_open(each))

    def _is_open(self, partition: int) -> bool:
        """Whether its cell answers, and nothing failed there a moment ago: other partitions go on."""
        return not self._views[partition].journal.is_stopped and not self._is_unresponsive(partition)

    def _is_unresponsive(self, partition: int) -> bool:
        return self._context.journals.is_unresponsive(self._views[partition].journal.cell)

    async def _load_then_match(
        self, consumer: WaitingConsumer, not_loaded_journals: Sequence[Journal], shares: Mapping[int, int]
    ) -> None:
        try:
            await self._context.journals.load(not_loaded_journals)
            # An owner may have been lost there: the ask is matched again, now that this is known.
            await self._finish_attempts(consumer, [])
        except LakelogError as error:
            known = {each: share for each, share in shares.items() if self._views[each].journal.state is not None}
            await self._finish_attempts(consumer, self._begin_all(consumer, known), error)

    async def _finish_attempts(
        self, consumer: WaitingConsumer, attempts: Sequence[LeaseAttempt], refusal: LakelogError | None = None
    ) -> None:
        if attempts:
            await asyncio.wait([each.reply for each in attempts])
        consumer.is_attempting = False
        self._settle(consumer, attempts, refusal)
        self._serve_soon()

    def _settle(
        self, consumer: WaitingConsumer, attempts: Sequence[LeaseAttempt], refusal: BaseException | None
    ) -> None:
        """Answers the ask if it got something, or was refused."""
        grants: Grants = []
        for each in attempts:
            granted = self._end(consumer, each)
            if granted is not None:
                grants.append((each.view.journal, granted))
        refusal = error_of(attempts, refusal)
        # Without a try, progress was loaded: what stopped the partitions may have been left behind.
        if not grants and refusal is None and attempts and all(each.reply.exception() for each in attempts):
            refusal = stop_of_all_partitions(self._views, consumer)
        # Without a lease that may have been granted, the answer would keep it a secret: the repeat gets all of them.
        if grants and not consumer.done.done() and not isinstance(refusal, OutcomeUnknown):
            consumer.done.set_result(grants)
            grants = []
        for journal, granted in grants:
            self._context.journals.release(journal, consumer.take.owner, granted)
        if refusal is not None and not consumer.done.done():
            consumer.done.set_exception(refusal)

    def _not_loaded(self, consumer: WaitingConsumer, shares: Mapping[int, int]) -> list[Journal]:
        """If it would try where nothing is known yet: all such places that it may try, up to a number."""
        if all(not share or self._views[each].journal.state is not None for each, share in shares.items()):
            return []
        return not_loaded(self._views[each] for each in dict.fromkeys((*shares, *self._ready_for(consumer))))

    def _begin_all(self, consumer: WaitingConsumer, shares: Mapping[int, int]) -> list[LeaseAttempt]:
        attempts = (
            self._begin(consumer, partition, share, alone=len(shares) == 1) for partition, share in shares.items()
        )
        return [each for each in attempts if each is not None]

    def _begin(self, consumer: WaitingConsumer, partition: int, share: int, *, alone: bool) -> LeaseAttempt | None:
        view = self._views[partition]
        hands, suspect = 0, False
        if share and not consumer.take.isolates:
            hands, suspect = held_elsewhere(self._views, consumer.take.owner, partition)
        if suspect:
            consumer.empty_at[partition] = view.changes
            return None
        if not alone:
            # What comes from here is in the owner's hands together with what comes from elsewhere.
            hands = max(hands, 1)
        view.wanted += share
        take = replace(consumer.take, max_messages=share, hands=hands)
        return LeaseAttempt(
            view, partition, share, view.changes, alone, self._context.journals.submit(view.journal, take)
        )

    def _end(self, consumer: WaitingConsumer, attempt: LeaseAttempt) -> Granted | None:
        view, partition = attempt.view, attempt.partition
        view.wanted -= attempt.share
        consumer.unsearched.pop(partition, None)
        if attempt.reply.exception() is not None:
            return None
        reply = attempt.reply.result()
        if attempt.share:
            self._after_attempt(consumer, attempt, reply)
        return reply if isinstance(reply, Granted) else None

    def _after_attempt(self, consumer: WaitingConsumer, attempt: LeaseAttempt, reply: Reply) -> None:
        partition = attempt.partition
        self._due_first.pop(partition, None)
        if self._ready.pop(partition, 0) is None:
            # To the end: partitions take turns.
            self._ready[partition] = None
        if not isinstance(reply, Granted) and attempt.view.changes == attempt.changes:
            self._mark_empty(consumer, partition, alone=attempt.alone)

    def _mark_empty(self, consumer: WaitingConsumer, partition: int, *, alone: bool) -> None:
        """Nothing here, for anybody; or only a suspect, which somebody else may take, or this one when tried apart."""
        view = self._views[partition]
        if consumer.take.isolates or not view.is_suspect_due():
            self._ready.pop(partition, None)
        elif alone or not may_get_suspect(self._views, consumer, partition):
            consumer.empty_at[partition] = view.changes
