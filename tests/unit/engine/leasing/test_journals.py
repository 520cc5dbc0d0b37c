"""The traps of the lease store: lost answers, conflicts, clocks, callers that gave up, caches that are behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from lakelog.coordinator.leasing.codec import encode_state
from lakelog.coordinator.leasing.operations import AcquireMessages, CommitPosition, Granted, SeekPosition
from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import Leased
from lakelog.engine.leasing.journal import token_before
from lakelog.errors import LakelogError, LeaseLost, OutcomeUnknown, StaleGeneration, Unavailable
from lakelog.model.group import Group, GroupKind, GroupTopic, NewGroupSettings
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import CommitResult, JournalEntry, JournalRead, JournalRequest
from lakelog.storage.memory import MemoryCatalog, MemoryStore, utcnow
from tests.kit.waiting import eventually_async

PASSES: ContextVar[bool] = ContextVar("PASSES", default=False)
"""Return whether a call and its work finish without delay."""


class Journal:
    """A proxy between an engine and the journals of a store: loses replies, delays commits, counts them."""

    def __init__(self, store: MemoryStore) -> None:
        self._commit = store.groups.journals_commit
        self._read = store.groups.journals_read
        self.commits: list[list[JournalEntry]] = []
        self.lose_after: list[bool] = []
        """For the next commits: whether it is written before its answer is lost."""
        self.unread = 0
        """Number of reads that fail once a reply was lost."""
        self.when_lost: Callable[[], None] = lambda: None
        self.lost = asyncio.Event()
        self.hold_reads = False
        """Whether reads after a lost answer wait for `may_read`, unless the call they are for `PASSES`."""
        self.may_read = asyncio.Event()
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        store.groups.journals_commit = self.commit  # type: ignore[method-assign]
        store.groups.journals_read = self.read  # type: ignore[method-assign]

    async def commit(self, entries: Sequence[JournalEntry]) -> list[CommitResult]:
        self.commits.append(list(entries))
        self.begun.set()
        await self.gate.wait()
        if self.lose_after:
            if self.lose_after.pop(0):
                await self._commit(entries)
            self.lost.set()
            self.when_lost()
            raise OutcomeUnknown("the answer was lost")
        return await self._commit(entries)

    async def read(self, asks: Sequence[JournalRequest]) -> list[JournalRead]:
        if self.hold_reads and self.lost.is_set() and not PASSES.get():
            await self.may_read.wait()
        if self.lost.is_set() and self.unread:
            self.unread -= 1
            raise Unavailable("the database is away")
        return await self._read(asks)


@dataclass(frozen=True, kw_only=True)
class Two:
    """Two engines over the same stores. `ahead` moves the databases' clocks, `journal` is that of the first."""

    one: Engine
    two: Engine
    scope: Scope
    journal: Journal
    ahead: list[timedelta]

    async def publish(self, count: int) -> None:
        messages = [Message(value=b"%d" % number, key=b"k%d" % number) for number in range(count)]
        await self.one.publisher.messages(self.scope, "orders", messages)

    async def consume(self, engine: Engine, owner: str = "w1", **options: object) -> list[Leased]:
        known: dict[str, object] = {"max_messages": 10, "start_from": "earliest", **options}
        ask = ConsumeRequest(topic="orders", group="billing", owner=owner, **known)  # type: ignore[arg-type]
        return list((await engine.leases.consume(self.scope, ask)).leases)

    async def ack(self, engine: Engine, lease: Leased, owner: str = "w1") -> Answered | LakelogError:
        return await self.answer(engine, lease, Verb.ACK, owner)

    async def answer(self, engine: Engine, lease: Leased, verb: Verb, owner: str = "w1") -> Answered | LakelogError:
        answer = LeaseAnswer(
            verb=verb,
            partition=lease.partition,
            token=lease.token,
            offsets=tuple(lease.offsets),
        )
        return (await engine.leases.answer(self.scope, "orders", "billing", owner, [answer]))[0]

    async def place(self, name: str = "billing", kind: GroupKind = GroupKind.LEASE) -> tuple[Group, GroupTopic, Topic]:
        """Where a ledger of the topic is: for operations that no caller of an engine can make one by one."""
        topic = await self.one.topics.find(self.scope, "orders")
        group = await self.one.group_directory.resolve(self.scope, name, kind=kind, create=True)
        return (
            group,
            await self.one.group_directory.group_topic(group, topic, NewGroupSettings(start_from="earliest")),
            topic,
        )

    async def acked(self) -> int:
        return sum(each.acked for each in await self.one.groups.lag(self.scope, "billing"))


@asynccontextmanager
async def two_engines(cells: int = 1) -> AsyncIterator[Two]:
    """With a topic that has one partition in each cell."""
    ahead = [timedelta()]
    catalog, stores = MemoryCatalog(), {cell: MemoryStore(lambda: utcnow() + ahead[0]) for cell in range(cells)}
    journal = Journal(stores[0])
    engines = [Engine(catalog, dict(stores)) for _ in range(2)]
    for engine in engines:
        await engine.start()
    scope = await catalog.scope_create("p", "e")
    await engines[0].topics.create(scope, "orders", cells)
    try:
        yield Two(one=engines[0], two=engines[1], scope=scope, journal=journal, ahead=ahead)
    finally:
        for engine in engines:
            await engine.close()


async def is_first(both: Two, token: int) -> bool:
    group, _, topic = await both.place()
    return token == token_before(group, topic) + 1


@pytest.mark.parametrize("written", [True, False])
async def test_a_commit_of_unknown_outcome_is_decided_again(written: bool) -> None:
    """The lease is granted once, whether or not the lost commit was written."""
    async with two_engines() as both:
        await both.publish(3)
        both.journal.lose_after = [written]
        (lease,) = await both.consume(both.one)
        assert list(lease.offsets) == [0, 1, 2] and await is_first(both, lease.token)
        both.journal.lose_after = [written, written]
        assert await both.ack(both.one, lease) == Answered()
        assert await both.acked() == 3


async def test_S12_a_call_is_not_answered_without_a_lease_that_may_have_been_granted() -> None:
    """Otherwise no owner would know of the lease, while its delivery counts."""
    async with two_engines(cells=2) as both:
        await both.publish(20)
        both.journal.lose_after, both.journal.unread = [True], 1
        with pytest.raises(OutcomeUnknown):
            await both.consume(both.one, request_id="r1", max_messages=100)
        again = await both.consume(both.one, request_id="r1", max_messages=100)
        (seen,) = [lease for lease in again if lease.partition == 0]
        assert await is_first(both, seen.token) and seen.deliveries == {}
        # The lease of the other partition was given back, unless the repeat came first.
        others = await both.consume(both.one, request_id="r2", max_messages=100)
        assert {lease.partition for lease in [*again, *others]} == {0, 1}


async def test_S12_a_lease_that_ended_before_it_was_found_is_not_granted_again_to_the_same_call() -> None:
    async with two_engines() as both:
        await both.publish(1)
        both.journal.lose_after = [True]
        both.journal.when_lost = lambda: both.ahead.__setitem__(0, timedelta(minutes=5))
        with pytest.raises(OutcomeUnknown):
            await both.consume(both.one, request_id="r1")
        (lease,) = await both.consume(both.one, request_id="r1")
        assert lease.deliveries == {0: 2}


async def test_an_answer_that_may_have_been_written_is_not_called_unwritten() -> None:
    """A caller that gets `Unavailable` may send another answer instead."""
    async with two_engines() as both:
        await both.publish(1)
        (lease,) = await both.consume(both.one)
        both.journal.lose_after, both.journal.unread = [True], 1
        assert isinstance(await both.ack(both.one, lease), OutcomeUnknown)
        assert await both.ack(both.one, lease) == Answered() and await both.acked() == 1


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.ACK_THROUGH, Verb.DISCARD, Verb.NACK, Verb.RELEASE, Verb.FAIL])
async def test_S9_an_answer_whose_commit_was_lost_is_found_after_its_lease_has_ended(verb: Verb) -> None:
    async with two_engines() as both:
        await both.publish(2)
        (lease,) = await both.consume(both.one)
        both.journal.lose_after = [True]
        both.journal.when_lost = lambda: both.ahead.__setitem__(0, timedelta(minutes=5))
        first = replace(lease, offsets=[0])
        assert isinstance(await both.answer(both.one, first, verb), Answered)


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb not in (Verb.EXTEND, Verb.FILTER_REPEATS)])
async def test_S9_an_answer_whose_commit_was_lost_is_not_refused_after_a_seek(verb: Verb) -> None:
    """The seek closes the leases: whether the answer came before it, is no longer known."""
    async with two_engines() as both:
        await both.publish(2)
        (lease,) = await both.consume(both.one)
        group, group_topic, topic = await both.place()
        seek = SeekPosition(epoch=1, offset=0)
        both.journal.lose_after, both.journal.hold_reads = [True], True
        answer = asyncio.create_task(both.answer(both.one, lease, verb))
        await both.journal.lost.wait()
        PASSES.set(True)
        await both.two._journals.run(group, group_topic, topic, 0, seek)
        both.journal.may_read.set()
        assert isinstance(await answer, OutcomeUnknown)


async def test_S9_an_extend_whose_commit_was_lost_is_not_refused_when_its_lease_has_ended() -> None:
    async with two_engines() as both:
        await both.publish(1)
        (lease,) = await both.consume(both.one, lease_ms=5000)
        both.journal.lose_after = [True]
        both.journal.when_lost = lambda: both.ahead.__setitem__(0, timedelta(minutes=5))
        assert isinstance(await both.answer(both.one, lease, Verb.EXTEND), OutcomeUnknown)


async def test_S16_a_position_whose_commit_was_lost_is_not_refused_after_a_later_one() -> None:
    async with two_engines() as both:
        await both.publish(3)
        group, group_topic, topic = await both.place("audit", GroupKind.CURSOR)

        def commit(engine: Engine, offset: int) -> Awaitable[object]:
            return engine._journals.run(group, group_topic, topic, 0, CommitPosition(offset=offset))

        both.journal.lose_after, both.journal.hold_reads = [True], True
        first = asyncio.ensure_future(commit(both.one, 1))
        await both.journal.lost.wait()
        PASSES.set(True)
        await commit(both.two, 3)
        both.journal.may_read.set()
        with pytest.raises(OutcomeUnknown):
            await first


async def test_S17_a_consume_whose_commit_was_lost_is_not_refused_for_its_generation() -> None:
    async with two_engines() as both:
        await both.publish(2)
        group, group_topic, topic = await both.place()

        def take(engine: Engine, owner: str, generation: int) -> Awaitable[object]:
            take = AcquireMessages(owner=owner, max_messages=1, lease_ms=30_000, generation=generation)
            return engine._journals.run(group, group_topic, topic, 0, take)

        both.journal.lose_after, both.journal.hold_reads = [True], True
        first = asyncio.ensure_future(take(both.one, "w1", 1))
        await both.journal.lost.wait()
        PASSES.set(True)
        await take(both.two, "w2", 2)
        both.journal.may_read.set()
        with pytest.raises(OutcomeUnknown):
            await first


async def test_an_answer_that_was_refused_by_a_lost_commit_is_refused() -> None:
    """The commit had the answers of others: nothing of a refused one can have been written."""
    async with two_engines() as both:
        await both.publish(2)
        (lease,) = await both.consume(both.one, max_messages=1)
        both.journal.lose_after = [True]
        acked, late = await asyncio.gather(both.ack(both.one, lease), both.ack(both.one, lease, "w2"))
        assert acked == Answered() and isinstance(late, LakelogError) and not isinstance(late, OutcomeUnknown)


async def test_a_journal_that_never_answers_is_an_error_in_the_end() -> None:
    async with two_engines() as both:
        await both.publish(1)
        both.journal.lose_after = [False] * 1000
        with pytest.raises(OutcomeUnknown):
            await both.consume(both.one)
        both.journal.lose_after = []
        assert [list(lease.offsets) for lease in await both.consume(both.one)] == [[0]]


async def test_a_refusal_from_an_old_cache_is_looked_up_first() -> None:
    """An ack at a server that has not seen the lease yet is not a 409."""
    async with two_engines() as both:
        await both.publish(2)
        (first,) = await both.consume(both.two, "w2", max_messages=1)
        assert await both.ack(both.two, first, "w2") == Answered()
        (lease,) = await both.consume(both.one, max_messages=1)
        assert await both.ack(both.two, lease) == Answered()
        late = await both.ack(both.one, first)
        assert isinstance(late, LeaseLost)


async def test_S17_what_an_old_cache_calls_done_already_is_looked_up_first() -> None:
    """A position that is there already changes nothing, and is not written: it must not be taken from who is fenced."""
    async with two_engines() as both:
        one, other, scope = both.one, both.two, both.scope
        topic = await one.topics.find(scope, "orders")
        group = await one.group_directory.resolve(scope, "audit", kind=GroupKind.CURSOR, create=True)
        group_topic = await one.group_directory.group_topic(group, topic, NewGroupSettings(start_from="earliest"))

        async def commit(engine: Engine, generation: int) -> object:
            return await engine._journals.run(
                group, group_topic, topic, 0, CommitPosition(offset=0, generation=generation)
            )

        await commit(one, 1)
        await commit(other, 3)
        with pytest.raises(StaleGeneration):
            await commit(one, 1)


async def test_two_servers_that_decide_at_once_agree() -> None:
    """One of two decisions against the same version is made again."""
    async with two_engines() as both:
        await both.publish(40)
        asks = [
            both.consume(engine, f"w{number}", max_messages=1)
            for number, engine in enumerate([both.one, both.two] * 20)
        ]
        found = [lease.offsets[0] for leases in await asyncio.gather(*asks) for lease in leases]
        assert sorted(found) == list(range(40))


async def test_a_caller_cancelled_while_its_commit_is_on_its_way_holds_nothing() -> None:
    async with two_engines() as both:
        await both.publish(2)
        both.journal.gate.clear()
        asking = asyncio.create_task(both.consume(both.one))
        await both.journal.begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        both.journal.gate.set()
        (lease,) = await both.consume(both.one, "w2", wait_ms=5000)
        assert list(lease.offsets) == [0, 1] and lease.failures == {}


async def test_S8_a_look_at_other_cells_leaves_a_commit_on_its_way_alone() -> None:
    """Else what is committed would be applied twice, or not at all, to what the server knows."""
    async with two_engines(cells=2) as both:
        await both.publish(20)
        await both.consume(both.one, max_messages=1)
        book, group = both.one._journals, await both.one.group_directory.resolve(both.scope, "billing", create=False)
        topic = await both.one.topics.find(both.scope, "orders")
        group_topic = await both.one.group_directory.group_topic(group, topic)
        far, near = (book.journal(group, group_topic, topic, partition) for partition in (1, 0))
        await both.consume(both.one, max_messages=2)
        gate, read = asyncio.Event(), both.one.cells[1].groups.journals_read

        async def slow(asks: Sequence[JournalRequest]) -> list[JournalRead]:
            await gate.wait()
            return await read(asks)

        both.one.cells[1].groups.journals_read = slow  # type: ignore[method-assign]
        looking = asyncio.create_task(book.refresh([far, near]))
        await asyncio.sleep(0)
        both.journal.begun.clear()
        both.journal.gate.clear()
        take = AcquireMessages(owner="w2", max_messages=1, lease_ms=10_000)
        taking = asyncio.create_task(book.run(group, group_topic, topic, 0, take))
        await both.journal.begun.wait()
        gate.set()
        await looking
        assert near.busy
        both.journal.gate.set()
        assert isinstance(await taking, Granted)
        (written,) = await both.two._journals.states(group, topic, group_topic, [0])
        assert near.state is not None and encode_state(near.state) == encode_state(written)


async def test_operations_that_arrive_together_share_a_commit() -> None:
    async with two_engines() as both:
        await both.publish(64)
        await both.consume(both.one, "first", max_messages=1)
        both.journal.commits.clear()
        await asyncio.gather(*(both.consume(both.one, f"w{number}", max_messages=1) for number in range(63)))
        assert len(both.journal.commits) <= 4


async def test_time_is_the_databases() -> None:
    """S8: a lease ends by the database's clock, not by this process's idea of it."""
    async with two_engines() as both:
        await both.publish(1)
        (lease,) = await both.consume(both.one, lease_ms=60_000)
        assert await both.consume(both.two, "w2") == []
        both.ahead[0] = timedelta(seconds=61)
        # The second engine's estimate is a minute behind: the store tells it.
        assert isinstance(await both.ack(both.one, lease), LeaseLost)
        (again,) = await both.consume(both.two, "w2", wait_ms=5000)
        assert list(again.offsets) == [0] and again.suspect


async def test_a_database_clock_that_was_set_back_is_noticed() -> None:
    async with two_engines() as both:
        await both.publish(2)
        (first,) = await both.consume(both.one, max_messages=1)
        both.ahead[0] = timedelta(seconds=-3600)
        assert await both.ack(both.one, first) == Answered()
        (second,) = await both.consume(both.one, max_messages=1)
        assert await both.ack(both.one, second) == Answered()


async def test_a_server_that_takes_over_knows_when_the_leases_of_another_are_over() -> None:
    """L5, even if no consumer waits: it only read the journal, and wrote nothing yet."""
    async with two_engines() as both:
        await both.publish(1)
        (lease,) = await both.consume(both.one, lease_ms=300)
        assert await both.consume(both.two, "w2") == []

        async def again() -> list[Leased]:
            return await both.consume(both.two, "w2")

        (found,) = await eventually_async(again, every=0.05)
        assert found.offsets == lease.offsets and found.suspect
