"""The list of groups: it says what each group's description says, with as many statements for a thousand as for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lakelog.coordinator.leasing import codec
from lakelog.engine import Engine, EngineSettings
from lakelog.engine.clock import ExactClock
from lakelog.engine.groups import summaries
from lakelog.engine.leasing import decider
from lakelog.engine.leasing.consuming import Leased
from lakelog.model.attention import concerns_of
from lakelog.model.group import GroupInfo, GroupKind
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from lakelog.model.progress import GroupSummary
from lakelog.model.times import to_ms
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import DeadLetterKey, JournalRow
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.group_support import commit_of
from tests.unit.engine.support import Clock, publish, started, text

FROM_START: dict[str, Any] = {"start_from": "earliest"}


class Shop:
    """An engine over two cells with a topic of four partitions, of six messages each."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.catalog = MemoryCatalog(self.clock)
        self.stores = [MemoryStore(self.clock), MemoryStore(self.clock)]
        self.engine: Engine
        self.scope: Scope
        self.topic: Topic

    async def lease(self, group: str, count: int = 4) -> list[Leased]:
        return await self.lease_in("orders", group, count)

    async def lease_in(self, topic: str, group: str, count: int = 4) -> list[Leased]:
        ask = ConsumeRequest(topic=topic, group=group, owner="ann", max_messages=count, **FROM_START)
        return list((await self.engine.leases.consume(self.scope, ask)).leases)

    async def answer(self, group: str, leases: list[Leased], verb: Verb, each: int | None = None) -> None:
        """Answer for some messages of each lease, or for all."""
        answers = [
            LeaseAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=(at,), delay_ms=60_000)
            for lease in leases
            for at in lease.offsets[:each]
        ]
        results = await self.engine.leases.answer(self.scope, "orders", group, "ann", answers)
        assert not [result for result in results if isinstance(result, Exception)]

    async def listed(self) -> dict[str, GroupSummary]:
        return {each.name: each for each in await self.engine.groups.list(self.scope)}


@asynccontextmanager
async def shop(*, exact: bool = False) -> AsyncIterator[Shop]:
    """Yield the shop. With `exact`, tests may let any time pass between two decisions."""
    made = Shop()
    settings = EngineSettings(clock=lambda: ExactClock(lambda: to_ms(made.clock.now)))
    async with started(made.catalog, *made.stores, settings=settings if exact else None) as made.engine:
        made.scope = await made.catalog.scope_create("shop", "test")
        made.topic = await made.engine.topics.create(made.scope, "orders", partitions=4)
        await made.engine.topics.create(made.scope, "refunds", partitions=1)
        for n in range(6):
            made.clock.pass_by(seconds=10)
            for partition in range(4):
                await publish(made.engine, made.scope, "orders", text(f"{n}", partition=partition))
        yield made


async def with_every_kind_of_progress(made: Shop) -> None:
    """Groups with leases, retries, dead letters, members, a pause, a seek that journals have not heard of, and none."""
    engine, scope = made.engine, made.scope
    await made.lease("leased")
    await made.answer("acked", await made.lease("acked", 24), Verb.ACK)
    await made.answer("retried", await made.lease("retried", 24), Verb.NACK, 2)
    await made.answer("dead", await made.lease("dead", 24), Verb.FAIL, 3)
    await made.answer("paused", await made.lease("paused", 8), Verb.ACK)
    await engine.groups.pause(scope, "paused")
    await made.answer("sought", await made.lease("sought", 24), Verb.NACK, 1)
    group = await engine.group_directory.resolve(scope, "sought", create=False)
    group_topic = await engine.group_directory.group_topic(group, made.topic)
    await made.catalog.groups.group_topic_seek(group_topic, [3, None, 6, 0])
    for member in ("one", "two"):
        await engine.members.join(
            scope, JoinRequest(group="joined", topics=["orders", "refunds"], member_id=member, **FROM_START)
        )
    cursor: dict[str, Any] = {"kind": GroupKind.CURSOR, "start_from": "earliest"}
    await engine.members.join(scope, JoinRequest(group="cursor", topics=["orders"], member_id="spark", **cursor))
    await engine.groups.commit(scope, commit_of("cursor", "orders", {0: 6, 1: 3}))
    await engine.group_directory.resolve(scope, "nothing", create=True)


async def assert_listed_as_described(made: Shop) -> dict[str, GroupSummary]:
    listed = await made.listed()
    for name, summary in listed.items():
        described = await made.engine.groups.describe(made.scope, name)
        oldest = min((each.oldest_at for each in described.progress if each.oldest_at is not None), default=None)
        assert summary == GroupSummary(
            **{name: getattr(described, name) for name in GroupInfo.__struct_fields__},
            status=described.status,
            lag=sum(each.lag for each in described.progress),
            oldest_at=oldest,
            member_count=len(described.members),
            dead_letters=described.dead_letters,
        ), name
    return listed


@pytest.mark.parametrize("every", [1, 256], ids=["snapshots", "rows"])
async def test_a_group_is_listed_as_it_is_described(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(decider, "SNAPSHOT_EVERY", every)
    async with shop() as made:
        await with_every_kind_of_progress(made)
        listed = await assert_listed_as_described(made)
        assert {
            name: (each.status, each.lag, each.member_count, each.dead_letters) for name, each in listed.items()
        } == {
            "acked": ("caught-up", 0, 0, 0),
            "cursor": ("working", 15, 1, 0),
            "dead": ("working", 12, 0, 12),
            "joined": ("queued", 24, 2, 0),
            "leased": ("working", 24, 0, 0),
            "nothing": ("caught-up", 0, 0, 0),
            "paused": ("paused", 16, 0, 0),
            "retried": ("working", 24, 0, 0),
            "sought": ("working", 15, 0, 0),
        }
        made.clock.pass_by(seconds=31)
        later = await assert_listed_as_described(made)
        assert later["leased"].status == "no-consumer", "its owner was lost"


async def test_the_groups_that_need_attention_most_say_why_they_wait_as_their_descriptions_do() -> None:
    async with shop(exact=True) as made:
        await with_every_kind_of_progress(made)
        made.clock.pass_by(minutes=11)
        concerns = [each.name for each in concerns_of([*(await made.listed()).values()], made.clock.now)]
        assert len(concerns) > 3
        for explained in (2, 3):
            listed = await made.engine.groups.list(made.scope, explained=explained)
            causes = {each.name: each.stuck for each in listed if each.stuck is not None}
            described = [await made.engine.groups.describe(made.scope, name) for name in concerns[:explained]]
            assert causes == {each.name: each.stuck for each in described}


async def test_a_member_whose_session_is_over_is_not_counted_and_not_evicted() -> None:
    async with shop() as made:
        join = JoinRequest(group="joined", topics=["orders"], member_id="one", **FROM_START)
        await made.engine.members.join(made.scope, join)
        group = await made.engine.group_directory.resolve(made.scope, "joined", create=False)
        store = made.stores[group.cell].groups
        await store.heartbeats_write([(group.group_id, "one")])
        # A server that has not seen the member itself.
        async with started(made.catalog, *made.stores) as other:
            assert [each.member_count for each in await other.groups.list(made.scope)] == [1]
            made.clock.pass_by(seconds=40)
            (listed,) = await other.groups.list(made.scope)
            assert (listed.member_count, listed.status) == (0, "no-consumer")
            assert (await store.members_read(group.group_id)).version == 1


async def test_what_retention_took_is_no_lag_in_the_list_either() -> None:
    async with shop() as made:
        await with_every_kind_of_progress(made)
        for partition, cell in enumerate(made.topic.cells):
            await made.stores[cell].log_start_raise([(made.topic.pid(partition), 5)])
        listed = await assert_listed_as_described(made)
        assert listed["nothing"].lag == 0 and listed["joined"].lag == 4


async def test_a_journal_whose_rows_have_no_figures_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version wrote them."""
    whole = codec.encode_events
    monkeypatch.setattr(decider, "encode_events", lambda events, at, figures: whole(events, at, None))  # type: ignore[arg-type]
    async with shop() as made:
        await with_every_kind_of_progress(made)
        await assert_listed_as_described(made)


@pytest.mark.parametrize("is_snapshot", [True, False])
async def test_S24_a_journal_of_a_newer_version_does_not_keep_other_groups_from_being_listed(is_snapshot: bool) -> None:
    async with shop() as made:
        await made.lease("sound", 24)
        await made.lease("newer", 24)
        before = await made.listed()
        pid = made.topic.pid(0)
        group_id = (await made.engine.group_directory.resolve(made.scope, "newer", create=False)).group_id
        journal = made.stores[made.topic.cells[0]].groups._journals[group_id, pid]
        last, at = journal.rows[-1]
        body = msgspec.msgpack.encode((99, 0, [[13, 1]]))
        journal.rows.append((JournalRow(version=last.version + 1, snapshot=is_snapshot, body=body), at))
        listed = await made.listed()
        assert listed["sound"] == before["sound"]
        assert (listed["newer"].status, listed["newer"].lag) == ("unreadable", 18)


async def test_dead_letters_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "MAX_DEAD_LETTERS", 5)
    async with shop() as made:
        await made.answer("dead", await made.lease("dead", 24), Verb.FAIL, 3)
        assert (await made.listed())["dead"].dead_letters == 5
        store = made.stores[made.topic.cells[0]]
        keys = [DeadLetterKey(pid=made.topic.pid(0), offset=offset, epoch=0) for offset in range(3)]
        group = await made.engine.group_directory.resolve(made.scope, "dead", create=False)
        assert await store.groups.dead_discard(group.group_id, keys) == 3


def counted_calls(made: Shop, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of calls to the stores from now on, by name."""
    calls: Counter[str] = Counter()

    def count(target: Any, name: str) -> None:
        verb = getattr(target, name)

        async def counted(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return await verb(*args, **named)

        monkeypatch.setattr(target, name, counted)

    for target in (made.catalog.groups, *made.stores, *(store.groups for store in made.stores)):
        for name in dir(target):
            # Announcements are sent in the background, at any time.
            if not name.startswith(("_", "announce")) and callable(getattr(target, name)):
                count(target, name)
    return calls


async def test_many_groups_take_as_many_calls_to_the_stores_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop() as made:
        await made.answer("g0", await made.lease("g0", 24), Verb.NACK, 1)
        calls = counted_calls(made, monkeypatch)
        assert len(await made.listed()) == 1
        of_one = calls.copy()
        calls.clear()
        assert len((await made.engine.groups.stats(made.scope, "orders")).groups) == 1
        of_stats = calls.copy()
        for n in range(1, 50):
            await made.lease(f"g{n}")
        calls.clear()
        assert len(await made.listed()) == 50
        # The homes of the groups, which hold their members, are now in both cells.
        assert calls - Counter(members_list=1) == of_one
        assert sum(calls.values()) <= 16
        calls.clear()
        assert len((await made.engine.groups.stats(made.scope, "orders")).groups) == 50
        assert calls - of_stats == Counter(), "the first message of each partition is known by now"


async def test_many_topics_of_a_group_take_as_many_calls_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop() as made:
        await made.answer("billing", await made.lease("billing", 24), Verb.NACK, 1)
        calls = counted_calls(made, monkeypatch)
        (before,) = {each.topic for each in (await made.engine.groups.describe(made.scope, "billing")).progress}
        of_one = calls.copy()
        for n in range(5):
            await made.engine.topics.create(made.scope, f"more-{n}", 2)
            await publish(made.engine, made.scope, f"more-{n}", text("x", partition=0))
            answer = await made.lease_in(f"more-{n}", "billing")
            assert len(answer) == 1
        described = await made.engine.groups.describe(made.scope, "billing")
        assert {each.topic for each in described.progress} == {before, *(f"more-{n}" for n in range(5))}
        assert described.lag == 24 + 5
        calls.clear()
        assert await made.engine.groups.describe(made.scope, "billing") == described
        assert calls - of_one == Counter(), "the times of messages were read before, once for each topic"


def test_figures_are_noted_beside_events_and_read_without_them() -> None:
    assert codec.decode_summary(codec.encode_events([], 0, None)) is None  # type: ignore[arg-type]
