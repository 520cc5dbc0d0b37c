"""Groups through the client, the same over every transport: the list in one call, and skips."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

import lakelog
from lakelog.errors import DeadLetterNotFound, InvalidRequest, OffsetOutOfRange
from lakelog.model.group import MAX_LEASE_MS, MAX_SESSION_MS, MAX_WINDOW, MIN_LEASE_MS, MIN_SESSION_MS
from lakelog.model.lease import MAX_DELAY_MS, Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_WAIT_MS
from lakelog.model.membership import JoinRequest
from lakelog.model.progress import GroupPage, GroupQuery
from lakelog.model.seek import Skipped

WISH: dict[str, Any] = {"start_from": "earliest"}


async def test_groups_are_listed_with_how_far_they_are_in_one_call(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(2)
        assert await log.groups() == []
        await orders.publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(10)])
        billing, email = log.group("billing"), log.group("email")
        await billing.join(JoinRequest(group="billing", topics=("orders",), member_id="one", **WISH))
        wish = ConsumeRequest(topic="orders", group="email", owner="ann", request_id="r", max_messages=100, **WISH)
        leases = (await email.consume(wish)).leases
        answers = [
            LeaseAnswer(
                verb=Verb.FAIL if lease.partition else "ack", partition=lease.partition, token=lease.token, offsets=some
            )
            for lease in leases
            for some in [tuple(sorted(lease.offsets()))]
        ]
        await email.answer("orders", "ann", answers)
        transport = type(log._calls.transport)
        call, calls = transport.call, list[str | None]()

        async def counted(self: object, operation: object, request: GroupQuery, seconds: float) -> GroupPage:
            calls.append(request.after)
            return await call(self, operation, request, seconds)

        monkeypatch.setattr(transport, "call", counted)
        first, second = await log.groups()
        assert calls == [None]
        monkeypatch.undo()
        told = (first.name, first.status, first.lag, first.member_count, first.dead_letters)
        assert told == ("billing", "queued", 10, 1, 0)
        told = (second.name, second.status, second.lag, second.member_count, second.dead_letters)
        assert told == ("email", "caught-up", 0, 0, 5)
        described = await billing.describe()
        assert described.group.settings == first.settings and described.status == first.status
        assert first.oldest_at == min(each.oldest_at for each in described.progress if each.oldest_at)
        assert second.oldest_at is None


async def test_a_skip_leaves_leases_and_counts_the_rest_as_cut(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing = log.topic("orders"), log.group("billing")
        await orders.create(1)
        await orders.publish_many([{"n": n} for n in range(10)])
        wish = ConsumeRequest(topic="orders", group="billing", owner="ann", request_id="r", max_messages=2, **WISH)
        (lease,) = (await billing.consume(wish)).leases
        planned = await orders.skip("billing", partition=0, offset=8, dry_run=True)
        assert planned == Skipped(dry_run=True, partition=0, offset=8, messages=6, leased=2)
        assert await orders.skip("billing", partition=0, offset=8) == Skipped(
            partition=0, offset=8, messages=6, leased=2
        )
        assert (await orders.skip("billing", partition=0, offset=8)).messages == 0
        await billing.answer(
            "orders", "ann", [LeaseAnswer(verb=Verb.ACK, partition=0, token=lease.token, offsets=(0, 1))]
        )
        (progress,) = await billing.progress()
        assert (progress.acked, progress.cut, progress.committed, progress.lag) == (2, 6, 8, 2)
        with pytest.raises(OffsetOutOfRange, match="skip to 10 at most"):
            await orders.skip("billing", partition=0, offset=11)


async def test_pages_of_groups_are_followed_to_the_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("orders").create(1)
        await log.group("billing").join(JoinRequest(group="billing", topics=("orders",), member_id="one", **WISH))
        transport = type(log._calls.transport)
        call, calls = transport.call, list[str | None]()

        async def cut_short(self: object, operation: object, request: GroupQuery, seconds: float) -> GroupPage:
            calls.append(request.after)
            page = await call(self, operation, request, seconds)
            return GroupPage(groups=page.groups, next="billing" if request.after is None else None)

        monkeypatch.setattr(transport, "call", cut_short)
        assert [group.name for group in await log.groups()] == ["billing"]
        monkeypatch.undo()
        await log.topic("other").create()
        assert [group.name for group in await log.groups(contains="il", limit=1)] == ["billing"]
        assert await log.groups(contains="il", after="billing") == await log.groups(contains="x") == []
        assert [topic.name for topic in await log.topics(group="billing")] == ["orders"]
        orders = log.topic("orders")
        described = (await orders.stats(described=True)).described
        assert described is not None and described.now is not None
        assert replace(described, now=None) == replace(await orders.describe(), now=None)
        assert (await orders.stats()).described is None
        names = await log.inventory()
        assert (names.topics, names.groups) == (("orders", "other"), ("billing",))
        assert calls == [None, "billing"]


async def test_a_nack_may_delay_a_message_for_one_week_and_no_longer(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing = log.topic("orders"), log.group("billing")
        await orders.create(1)
        await orders.publish({"n": 1})
        wish = ConsumeRequest(topic="orders", group="billing", owner="ann", request_id="r", **WISH)
        (lease,) = (await billing.consume(wish)).leases
        nack = LeaseAnswer(verb=Verb.NACK, partition=0, token=lease.token, offsets=(0,), delay_ms=MAX_DELAY_MS + 1)
        with pytest.raises(InvalidRequest, match="delay_ms"):
            await billing.answer("orders", "ann", [nack])
        (answered,) = await billing.answer("orders", "ann", [structs.replace(nack, delay_ms=MAX_DELAY_MS)])
        assert isinstance(answered, Answered) and answered.retry_in_ms == MAX_DELAY_MS


LIMITS = {
    "session_timeout_ms": ("session_ms", MIN_SESSION_MS, MAX_SESSION_MS),
    "lease_ms": ("lease_ms", MIN_LEASE_MS, MAX_LEASE_MS),
    "max_messages": ("max_messages", 1, MAX_BATCH_MESSAGES),
    "wait_ms": ("wait_ms", 0, MAX_WAIT_MS),
    "window": ("window", 1, MAX_WINDOW),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_limits_of_groups_are_the_same_over_every_transport(url: str, name: str) -> None:
    option, least, most = LIMITS[name]

    async def ask(log: lakelog.AsyncLakelog, number: int) -> None:
        group = log.group(f"g-{number}")
        options: dict[str, Any] = {"group": group.name, option: number, **WISH}
        if option in ("session_ms", "window"):
            await group.join(JoinRequest(topics=("orders",), member_id="one", **options))
        if option != "session_ms":
            # The topic has a message, so that the longest wait ends at once.
            await group.consume(ConsumeRequest(topic="orders", owner="ann", **options))

    async with lakelog.connect_async(url) as log:
        await log.topic("orders").create(1)
        await log.topic("orders").publish({"n": 1})
        for allowed in (least, most):
            await ask(log, allowed)
        for refused in (least - 1, most + 1):
            with pytest.raises(InvalidRequest, match=rf"`(\$\.)?{name}`"):
                await ask(log, refused)


async def test_a_character_that_postgresql_cannot_store_is_left_out_of_a_reason(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing = log.topic("orders"), log.group("billing")
        await orders.create(1)
        await orders.publish({"n": 1})
        wish = ConsumeRequest(topic="orders", group="billing", owner="ann", request_id="r", **WISH)
        (lease,) = (await billing.consume(wish)).leases
        fail = LeaseAnswer(verb=Verb.FAIL, partition=0, token=lease.token, offsets=(0,), reason="a\0b" + "é" * 4096)
        (answered,) = await billing.answer("orders", "ann", [fail])
        assert isinstance(answered, Answered)
        (letter,) = await orders.dead_letters("billing").list()
        assert letter.error == "ab" + "é" * 2047


async def test_the_limits_of_dead_letter_calls_are_the_same_everywhere(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await _die(log, {"n": 1})
        dead = orders.dead_letters("billing")
        (letter,) = await dead.list()
        unknown = [f"1-9-{number}" for number in range(10_001)]
        for refused, said in (
            (lambda: dead.page(0, None, 0), "limit"),
            (lambda: dead.page(0, None, 1001), "limit"),
            (lambda: dead.page(0, "1" * 121), "after"),
            (lambda: dead.page(0, "x"), "end of a page of dead letters"),
            (lambda: dead.find("x"), "not a message id"),
            (lambda: dead.find("1-0-" + "0" * 117), "message_id"),
            (lambda: dead.retry("x"), "not a message id"),
            (lambda: dead.redrive_these([]), "message_ids"),
            (lambda: dead.redrive_these(unknown), "message_ids"),
            (lambda: dead.redrive_these([letter.id], max_redrives=1_000_001), "max_redrives"),
            (lambda: dead.discard(*unknown), "message_ids"),
            (lambda: dead.discard("1-0-" + "0" * 117), "message_ids"),
            (lambda: dead.where("x" * 4096 + " = 1").list(), "at most 4096 characters"),
        ):
            with pytest.raises(InvalidRequest, match=said):
                await refused()
        with pytest.raises(DeadLetterNotFound):
            await dead.redrive_these(unknown[:3])
        with pytest.raises(DeadLetterNotFound):
            await dead.discard(*unknown[:3])
        assert await dead.list() == [letter] == (await dead.page(0, None)).letters
        assert await dead.find(letter.id) == letter


async def test_a_dead_letter_is_the_same_over_every_transport(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await _die(
            log,
            lakelog.Outgoing({"n": 1}, key="k", headers={"a": "b"}),
            lakelog.Outgoing("text", key=b"\xff"),
            lakelog.Outgoing(b"\xfe"),
            lakelog.Outgoing(None, key="gone"),
        )
        dead = log.topic("orders").dead_letters("billing")
        first, second, third, fourth = letters = await dead.list()
        assert [letter.raw for letter in letters] == [b'{"n":1}', b"text", b"\xfe", None]
        assert [letter.key for letter in letters] == [b"k", b"\xff", None, b"gone"]
        assert [letter.headers for letter in letters] == [{"a": "b"}, {}, {}, {}]
        assert [letter.content_type for letter in (first, second)] == ["application/json", "text/plain"]
        assert {(letter.state, letter.error, letter.without_message) for letter in letters} == {("dead", "no", False)}
        assert (await dead.retry(third.id, value=b"new")).ids == (third.id,)
        assert await dead.discard(fourth.id) == 1
        (gone,) = await dead.list(state="redriven")
        assert (gone.id, gone.redriven_to) == (third.id, f"{third.id[:-1]}4")
        assert await dead.list() == [first, second]


async def _die(log: lakelog.AsyncLakelog, *messages: object) -> None:
    """Publish messages to the only partition of a new topic, and let the group fail them."""
    orders, billing = log.topic("orders"), log.group("billing")
    await orders.create(1)
    await orders.publish_many(messages)
    wish = ConsumeRequest(topic="orders", group="billing", owner="ann", request_id="r", max_messages=9, **WISH)
    (lease,) = (await billing.consume(wish)).leases
    offsets = tuple(range(len(messages)))
    fail = LeaseAnswer(verb=Verb.FAIL, partition=0, token=lease.token, offsets=offsets, reason="no")
    await billing.answer("orders", "ann", [fail])


async def test_progress_lists_the_open_leases(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing = log.topic("orders"), log.group("billing")
        await orders.create(1)
        await orders.publish_many([{"n": n} for n in range(3)])
        wish = ConsumeRequest(topic="orders", group="billing", owner="ann", request_id="r", max_messages=2, **WISH)
        await billing.consume(wish)
        (progress,) = await billing.progress()
        (lease,) = progress.leases
        assert (lease.owner, lease.topic, lease.partition, lease.offsets) == ("ann", "orders", 0, ((0, 1),))
