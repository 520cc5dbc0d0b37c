"""Dead letters: pages over cells, filters, redrives that happen once and not for ever, repaired values, discards."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from lakelog.batches import decode, encode, from_messages, to_messages
from lakelog.engine.groups import dead_letters as module
from lakelog.engine.groups.dead_letters import DeadLetters
from lakelog.errors import (
    DeadLetterNotFound,
    GroupNotFound,
    InvalidFilter,
    InvalidRequest,
    OutcomeUnknown,
    RedriveRefused,
    TooLarge,
    TopicNotFound,
    Unavailable,
)
from lakelog.model.dead_letters import (
    DeadLetter,
    DeadLetterPage,
    DeadLetterQuery,
    DeadLetterRequest,
    DiscardRequest,
    PurgeDeadLettersRequest,
    Redriven,
    RedriveRequest,
    Repair,
)
from lakelog.model.group import Group
from lakelog.model.limits import MAX_MESSAGE_BYTES
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import CommitStatus, DeadLetterKey, JournalEntry, NewDeadLetter
from lakelog.storage.store import Append, Appended, Payload, Refused
from tests.unit.engine.group_support import World, ms

BORN = datetime(2025, 12, 31, tzinfo=UTC)
LATER = datetime(2027, 1, 1, tzinfo=UTC)


class Morgue(World):
    """A world with dead letters in a topic of two partitions, each in a cell of its own."""

    scope_: Scope
    topic_: Topic
    group: Group

    async def open(self) -> None:
        self.scope_, self.topic_ = await self.topic()
        self.group, _ = await self.joined(self.scope_, self.topic_)
        self.grown: builtins.list[tuple[int, int]] = []
        self._versions = dict.fromkeys((0, 1), 0)
        self.dead = DeadLetters(
            self.catalog,
            self.cells,
            self.topics,
            self.group_directory,
            lambda cell, pid, first, count: self.grown.append((cell, pid)),
        )

    async def list(self, **fields: Any) -> DeadLetterPage:
        return await self.dead.list(self.scope_, DeadLetterQuery(group="billing", **fields))

    async def find(self, name: str, group: str = "billing") -> DeadLetter:
        return await self.dead.find(self.scope_, DeadLetterRequest(group=group, message_id=name))

    async def redrive(self, **fields: Any) -> Redriven:
        return await self.dead.redrive(self.scope_, RedriveRequest(group="billing", **fields))

    async def discard(self, **fields: Any) -> int:
        return (await self.dead.discard(self.scope_, DiscardRequest(group="billing", **fields))).discarded

    async def purge(self, **fields: Any) -> int:
        return (await self.dead.purge(self.scope_, PurgeDeadLettersRequest(group="billing", **fields))).purged

    async def die(
        self, partition: int, *messages: Message | None, reason: str = "timeout", epoch: int = 0
    ) -> builtins.list[str]:
        """Publishes messages and gives them up at once; their ids. None: its bytes are gone."""
        topic = self.topic_
        store = self.cells[topic.cells[partition]]
        written = [message or Message(value=b"gone") for message in messages]
        payload = Payload(data=encode(from_messages(written)), count=len(written))
        (answer,) = await store.append([Append(pid=topic.pid(partition), epoch=topic.epoch, payloads=[payload])])
        assert isinstance(answer, Appended)
        offsets = range(answer.base, answer.base + len(messages))
        await self.bury(partition, zip(offsets, messages, strict=True), reason, epoch)
        return [f"{topic.incarnation}-{partition}-{offset}" for offset in offsets]

    async def bury(self, partition: int, dying: object, reason: str, epoch: int = 0) -> None:
        self._versions[partition] += 1
        now = ms(self.clock.now)
        letters = [
            NewDeadLetter(
                offset=offset,
                epoch=epoch,
                deliveries=5,
                failures=4,
                reason=reason,
                owner="ann",
                payload=None if message is None else encode(from_messages([message])),
                traceback=f"in pay\n{reason}",
            )
            for offset, message in dying  # type: ignore[attr-defined]
        ]
        entry = JournalEntry(
            group_id=self.group.group_id,
            pid=self.topic_.pid(partition),
            version=self._versions[partition],
            snapshot=True,
            body=b"",
            not_before_ms=now,
            not_after_ms=now,
            dead_letters=letters,
        )
        (answer,) = await self.cells[self.topic_.cells[partition]].groups.journals_commit([entry])
        assert answer.status is CommitStatus.OK

    async def last(self, partition: int, offset: int) -> builtins.list[Message]:
        store = self.cells[self.topic_.cells[partition]]
        read = await store.read(self.topic_.pid(partition), offset, max_messages=1000, max_bytes=1 << 20)
        assert read is not None
        return [message for batch in read.batches for message in to_messages(decode(batch.payload))]


def text(value: str, **fields: object) -> Message:
    return Message(value=value.encode(), **fields)  # type: ignore[arg-type]


async def ids(world: Morgue, **options: object) -> list[str]:
    page = await world.list(**options)
    return [letter.id for letter in page.letters]


async def test_a_dead_letter_tells_all_about_its_message() -> None:
    world = Morgue()
    await world.open()
    message = text("v", key=b"k", headers={"a": "b"}, content_type="text/plain", correlation_id="c", created_at=BORN)
    (name,) = await world.die(1, message, reason="no route")
    (letter,) = (await world.list()).letters
    assert (letter.raw, letter.key, letter.headers, letter.content_type) == (b"v", b"k", {"a": "b"}, "text/plain")
    assert (letter.correlation_id, letter.created_at, letter.without_message) == ("c", BORN, False)
    assert (letter.id, letter.topic, letter.partition, letter.offset) == (name, "orders", 1, 0)
    assert (letter.error, letter.deliveries, letter.failures, letter.owner) == ("no route", 5, 4, "ann")
    assert (letter.state, letter.lineage, letter.redriven_to) == ("dead", None, None)
    assert ms(letter.at) == ms(world.clock.now)
    assert letter.traceback == "in pay\nno route"
    assert await ids(world, where="error like '%pay%'") == [], "filters do not search tracebacks"
    assert await world.find(name) == letter
    assert (await world.groups.describe(world.scope_, "billing")).dead_letters == 1


async def test_what_is_not_there_is_not_found() -> None:
    world = Morgue()
    await world.open()
    (name,) = await world.die(0, text("a"))
    incarnation = world.topic_.incarnation
    for other in (f"{incarnation}-0-1", f"{incarnation}-1-0", f"{incarnation}-9-0", f"{incarnation + 1}-0-0"):
        with pytest.raises(DeadLetterNotFound):
            await world.find(other)
    with pytest.raises(DeadLetterNotFound):
        await world.find(f"{incarnation}-0-{10**30}")
    with pytest.raises(InvalidRequest):
        await world.find("x")
    with pytest.raises(GroupNotFound):
        await world.find(name, group="nobody")
    await world.group_directory.resolve(world.scope_, "scoring", create=True)
    with pytest.raises(DeadLetterNotFound):
        await world.find(name, group="scoring")


async def test_pages_go_through_all_cells_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    world = Morgue()
    await world.open()
    expected = await world.die(0, *map(text, "abcde")) + await world.die(1, *map(text, "vwxyz"))
    assert sorted(await ids(world)) == sorted(expected)
    found: list[str] = []
    after: str | None = None
    for _ in range(10):
        page = await world.list(after=after, limit=3)
        found += [letter.id for letter in page.letters]
        after = page.next
        if after is None:
            break
    assert found == await ids(world)
    for bad in ("x", "1-2-3", "-1-2-3-4", "1-2-3-99999999999999999999"):
        with pytest.raises(InvalidRequest):
            await world.list(after=bad)


async def test_a_page_ends_where_enough_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_LOOKED_AT", 3)
    world = Morgue()
    await world.open()
    names = await world.die(0, *map(text, "abcde"))
    first = await world.list(where="value = 'e'")
    assert first.letters == [] and first.next is not None
    second = await world.list(where="value = 'e'", after=first.next)
    assert [letter.id for letter in second.letters] == [names[4]]


async def test_a_filter_sees_the_message_and_what_became_of_it() -> None:
    world = Morgue()
    await world.open()
    (one,) = await world.die(0, Message(value=b'{"total": 7}', key=b"k", headers={"source": "web"}), reason="timeout 1")
    (two,) = await world.die(1, text("x"), reason="refused")
    (bare,) = await world.die(1, None, reason="timeout 2")
    assert await ids(world, where="error like 'timeout%'") == [one, bare]
    assert await ids(world, where="value.total > 5 and key = 'k' and headers.source = 'web'") == [one]
    assert await ids(world, where="failures = 4 and deliveries = 5 and partition = 1 and offset = 0") == [two]
    assert await ids(world, where="value is null") == [bare]
    assert await ids(world, topic="orders", where="key is null") == [two, bare]
    assert await ids(world, state="redriven") == []
    with pytest.raises(InvalidFilter):
        await ids(world, where="what")
    with pytest.raises(TopicNotFound):
        await ids(world, topic="refunds")
    with pytest.raises(InvalidRequest):
        await ids(world, state="alive")


async def test_a_redrive_appends_to_the_same_partition_for_its_group_alone() -> None:
    """S14: each dead letter moves exactly once, and keeps key, headers and lineage."""
    world = Morgue()
    await world.open()
    message = text(
        "v",
        key=b"k",
        headers={"a": "b"},
        content_type="text/plain",
        correlation_id="c",
        created_at=BORN,
        expires_at=LATER,
        idempotency_key="once",
    )
    (name,) = await world.die(1, message)
    done = await world.redrive(message_ids=(name,))
    assert (done.redriven, done.refused, done.ids, done.has_more) == (1, 0, (name,), False)
    assert (await world.find(name)).traceback == "in pay\ntimeout", "the old letter keeps it"
    (again,) = await world.last(1, 1)
    assert (again.value, again.key, again.headers) == (b"v", b"k", {"a": "b"})
    assert (again.content_type, again.correlation_id, again.created_at) == ("text/plain", "c", BORN)
    assert (again.target_group, again.lineage, again.expires_at) == ("billing", f"{name}#1", None)
    assert world.grown == [(world.topic_.cells[1], world.topic_.pid(1))]
    letter = await world.find(name)
    assert (letter.state, letter.redriven_to) == ("redriven", f"{world.topic_.incarnation}-1-1")
    assert await ids(world) == []
    assert await ids(world, state="redriven") == [name]
    with pytest.raises(RedriveRefused, match="redriven already as"):
        await world.redrive(message_ids=(name,))
    assert (await world.redrive()).redriven == 0
    assert len(await world.last(1, 1)) == 1


async def test_a_dry_run_only_counts() -> None:
    world = Morgue()
    await world.open()
    names = await world.die(0, *(text(f"{n}") for n in range(15)))
    done = await world.redrive(where="offset > 1", dry_run=True)
    assert (done.redriven, done.refused, done.ids) == (13, 0, tuple(names[2:12]))
    assert world.grown == []
    assert len(await ids(world)) == 15


async def test_a_redrive_by_filter_goes_page_by_page_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    world = Morgue()
    await world.open()
    await world.die(0, *map(text, "abcde"))
    await world.die(1, *map(text, "vwxyz"), reason="other")
    done = await world.redrive(where="error = 'timeout'", limit=3)
    assert (done.redriven, done.has_more) == (3, True)
    done = await world.redrive(topic="orders", where="error = 'timeout'", limit=2)
    assert (done.redriven, done.has_more) == (2, False)
    assert [message.value for message in await world.last(0, 5)] == [b"a", b"b", b"c", b"d", b"e"]
    assert len(await ids(world)) == 5
    with pytest.raises(InvalidRequest):
        await world.redrive(message_ids=("1-0-0",), where="key = 'a'")


async def test_what_dies_again_and_again_is_not_sent_round_for_ever() -> None:
    world = Morgue()
    await world.open()
    (first,) = await world.die(0, text("v"))
    name = first
    for number in (1, 2, 3):
        await world.redrive(message_ids=(name,))
        (message,) = await world.last(0, number)
        assert message.lineage == f"{first}#{number}"
        await world.bury(0, [(number, message)], "again")
        name = f"{world.topic_.incarnation}-0-{number}"
    letter = await world.find(name)
    assert letter.lineage == f"{first}#3"
    with pytest.raises(RedriveRefused, match="3 times"):
        await world.redrive(message_ids=(name,))
    done = await world.redrive()
    assert (done.redriven, done.refused, done.refusals[0].id) == (0, 1, name)
    assert (await world.redrive(force=True)).redriven == 1
    assert (await world.last(0, 4))[0].lineage == f"{first}#4"


async def test_those_that_are_refused_do_not_hide_those_behind_them() -> None:
    world = Morgue()
    await world.open()
    await world.die(0, text("worn", lineage="1-0-0#3"), text("worn", lineage="1-0-1#3"), text("good"), text("good"))
    done = await world.redrive(limit=1)
    assert (done.redriven, done.refused, done.has_more) == (1, 2, True)


async def test_a_lineage_that_is_not_ours_does_not_count() -> None:
    world = Morgue()
    await world.open()
    (name,) = await world.die(0, text("v", lineage="staged-7"))
    await world.redrive(message_ids=(name,))
    assert (await world.last(0, 1))[0].lineage == f"{name}#1"


async def test_repaired_values_take_the_place_of_the_old() -> None:
    world = Morgue()
    await world.open()
    one, two, bare = await world.die(0, text("a", key=b"k"), text("b"), None)
    done = await world.redrive(repaired={one: Repair(value=b"A"), bare: Repair(value=b"found")})
    assert (done.redriven, done.ids) == (2, (one, bare))
    assert [(message.value, message.key) for message in await world.last(0, 3)] == [(b"A", b"k"), (b"found", None)]
    assert await ids(world) == [two]
    with pytest.raises(TooLarge):
        await world.redrive(repaired={two: Repair(value=b"x" * (MAX_MESSAGE_BYTES + 1))})
    (gone,) = await world.die(0, None)
    with pytest.raises(RedriveRefused, match="repaired"):
        await world.redrive(message_ids=(gone,))


async def test_repaired_headers_take_the_place_of_the_old_and_the_rest_stays() -> None:
    """S14"""
    world = Morgue()
    await world.open()
    one, bare = await world.die(0, text("a", key=b"k", headers={"h": "1"}), None)
    done = await world.redrive(repaired={one: Repair(headers={"h": "2"})})
    assert done.redriven == 1
    (message,) = await world.last(0, 2)
    assert (message.value, message.key, message.headers, message.lineage) == (b"a", b"k", {"h": "2"}, f"{one}#1")
    with pytest.raises(RedriveRefused, match="repaired value"):
        await world.redrive(repaired={bare: Repair(headers={"h": "2"})})


async def test_how_often_one_may_be_redriven_can_be_said() -> None:
    """S14: the loop guard."""
    world = Morgue()
    await world.open()
    (name,) = await world.die(0, text("worn", lineage="1-0-0#3"))
    with pytest.raises(RedriveRefused, match="3 times already"):
        await world.redrive(message_ids=(name,))
    assert (await world.redrive(message_ids=(name,), max_redrives=4, dry_run=True)).redriven == 1
    with pytest.raises(RedriveRefused):
        await world.redrive(message_ids=(name,), max_redrives=2)
    assert (await world.redrive(message_ids=(name,), max_redrives=0, force=True)).redriven == 1


async def test_of_several_that_are_named_the_good_ones_go() -> None:
    world = Morgue()
    await world.open()
    one, two = await world.die(0, text("a"), text("b"))
    await world.discard(message_ids=(one,))
    missing = f"{world.topic_.incarnation}-1-5"
    done = await world.redrive(message_ids=(missing, two, one, two))
    assert (done.redriven, done.refused, done.ids) == (1, 2, (two,))
    assert {refused.id for refused in done.refusals} == {missing, one}
    with pytest.raises(DeadLetterNotFound):
        await world.redrive(message_ids=(missing,))


async def test_two_redrives_at_once_append_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """S14: the second finds what the first has moved, and moves only the rest."""
    world = Morgue()
    await world.open()
    one, two, three = await world.die(0, *map(text, "abc"))
    groups = world.cells[world.topic_.cells[0]].groups
    redrive = groups.dead_redrive

    async def overtaken(
        group_id: int, keys: Sequence[DeadLetterKey], append: Append
    ) -> tuple[Appended | Refused | None, list[bool]]:
        monkeypatch.setattr(groups, "dead_redrive", redrive)
        await world.redrive(message_ids=(two,))
        return await redrive(group_id, keys, append)

    monkeypatch.setattr(groups, "dead_redrive", overtaken)
    done = await world.redrive()
    assert (done.redriven, done.refused, done.ids) == (2, 1, (one, three))
    assert "during the call" in done.refusals[0].reason
    assert [message.value for message in await world.last(0, 3)] == [b"b", b"a", b"c"]


async def test_a_redrive_that_fails_after_a_part_of_it_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that took it for nothing would repeat the call, and count what is redriven as refused."""
    world = Morgue()
    await world.open()
    dying = [*await world.die(0, text("a")), *await world.die(1, text("b"))]

    async def away(*args: object) -> object:
        raise Unavailable("PostgreSQL is away.")

    monkeypatch.setattr(world.cells[world.topic_.cells[1]].groups, "dead_redrive", away)
    with pytest.raises(OutcomeUnknown, match=r"redrove 1 dead letters.* PostgreSQL is away\."):
        await world.redrive(message_ids=tuple(dying))
    assert await ids(world) == dying[1:]
    with pytest.raises(Unavailable):
        await world.redrive(message_ids=tuple(dying[1:]))


async def test_a_redrive_goes_on_when_partitions_were_added_and_stops_when_the_topic_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Morgue()
    await world.open()
    one, two = await world.die(0, text("a"), text("b"))
    groups = world.cells[world.topic_.cells[0]].groups
    redrive = groups.dead_redrive

    async def during(change: object, *args: object) -> tuple[Appended | Refused | None, list[bool]]:
        monkeypatch.setattr(groups, "dead_redrive", redrive)
        await change  # type: ignore[misc]
        return await redrive(*args)  # type: ignore[arg-type]

    grow = world.topics.alter(world.scope_, "orders", partitions=3)
    monkeypatch.setattr(groups, "dead_redrive", lambda *args: during(grow, *args))
    assert (await world.redrive(message_ids=(one,))).redriven == 1
    drop = world.topics.delete(world.scope_, "orders")
    monkeypatch.setattr(groups, "dead_redrive", lambda *args: during(drop, *args))
    with pytest.raises(TopicNotFound):
        await world.redrive(message_ids=(two,))


async def test_what_dies_during_the_call_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 1)
    world = Morgue()
    await world.open()
    await world.die(0, text("a"), text("b"))
    groups = world.cells[world.topic_.cells[0]].groups
    redrive = groups.dead_redrive

    async def dying(*args: object) -> tuple[Appended | Refused | None, list[bool]]:
        world.clock.pass_by(seconds=1)
        answer = await redrive(*args)  # type: ignore[arg-type]
        await world.die(0, text("new"))
        return answer

    monkeypatch.setattr(groups, "dead_redrive", dying)
    assert (await world.redrive()).redriven == 2
    assert len(await ids(world)) == 2


async def test_discarded_is_for_good() -> None:
    world = Morgue()
    await world.open()
    one, two = await world.die(0, text("a"), text("b"))
    (three,) = await world.die(1, text("c"))
    assert await world.discard(where="value = 'a'") == 1
    assert await world.discard(message_ids=(one, two)) == 1
    assert await ids(world) == [three]
    assert await ids(world, state="discarded") == [one, two]
    with pytest.raises(RedriveRefused, match="discarded already"):
        await world.redrive(message_ids=(one,), force=True)
    with pytest.raises(DeadLetterNotFound):
        await world.discard(message_ids=(f"{world.topic_.incarnation}-1-9",))
    assert await world.discard(limit=5) == 1
    assert world.grown == []


async def test_the_newest_death_of_a_message_is_meant_by_its_id() -> None:
    world = Morgue()
    await world.open()
    (name,) = await world.die(0, text("a"), reason="first")
    await world.bury(0, [(0, text("a"))], "second", epoch=1)
    letter: DeadLetter = await world.find(name)
    assert (letter.epoch, letter.error) == (1, "second")
    assert (await world.redrive(message_ids=(name,))).redriven == 1
    (left,) = (await world.list()).letters
    assert (left.id, left.epoch) == (name, 0)


async def test_a_purge_deletes_what_is_finished_in_all_cells_up_to_a_limit() -> None:
    world = Morgue()
    await world.open()
    one, two = await world.die(0, text("a"), text("b"))
    three, four = await world.die(1, text("c"), text("d"))
    await world.discard(message_ids=(one, three))
    await world.redrive(message_ids=(two,))
    assert await world.purge(older_than_ms=3_600_000) == 0
    assert await world.purge(older_than_ms=0, limit=2) == 2
    assert await world.purge(older_than_ms=0, topic="orders") == 1
    assert await ids(world) == [four]
    assert await ids(world, state="discarded") == await ids(world, state="redriven") == []
    with pytest.raises(DeadLetterNotFound):
        await world.find(one)
