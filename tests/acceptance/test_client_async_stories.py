"""What became of a message, and why messages died, through the client: the same over every transport."""

from __future__ import annotations

from typing import Any

import pytest

import lakelog
from lakelog.client._async.group import AsyncGroup
from lakelog.errors import InvalidRequest, TopicNotFound
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message_story import MessageState, MessageStory

START: dict[str, Any] = {"start_from": "earliest"}


async def lease(group: AsyncGroup, request_id: str, count: int) -> Any:
    wish = ConsumeRequest(
        topic="orders", group=group.name, owner="ann", request_id=request_id, max_messages=count, **START
    )
    (found,) = (await group.consume(wish)).leases
    return found


def states(story: MessageStory) -> dict[str, str]:
    return {lane.group: str(lane.state) for lane in story.lanes}


async def test_a_story_follows_a_message_through_its_groups(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing, email = log.topic("orders"), log.group("billing"), log.group("email")
        await orders.create(1)
        first, second = await orders.publish_many([{"n": 1}, {"n": 2}])
        assert (await log.message_story(first.id)).lanes == ()
        held = await lease(billing, "r1", 1)
        told = await log.message_story(first.id)
        assert (told.status, told.topic, told.partition, told.offset) == ("published", "orders", 0, 0)
        assert told.appended_at is not None and told.lineage is None
        assert states(told) == {"billing": "leased"}
        assert told.lanes[0].events[0].text.startswith("Leased by ann until ")
        assert states(await log.message_story(second.id)) == {"billing": "ahead"}
        answer = LeaseAnswer(verb=Verb.FAIL, partition=0, token=held.token, offsets=(0,), reason="ValueError: no order")
        await billing.answer("orders", "ann", [answer])
        held = await lease(email, "r2", 2)
        await email.answer("orders", "ann", [LeaseAnswer(verb=Verb.ACK, partition=0, token=held.token, offsets=(0, 1))])
        told = await log.message_story(first.id, topic="orders")
        assert states(told) == {"billing": "dead", "email": "finished"}
        leased, died = told.lanes[0].events
        assert (leased.kind, leased.owner, leased.attempt) == ("leased", "ann", 1)
        assert (died.kind, died.error, died.owner) == ("died", "ValueError: no order", "ann")

        # Redriven for billing alone: the story goes on with the copy.
        await billing.dead_letters().retry(first.id)
        told = await log.message_story(first.id)
        assert [event.kind for event in told.lanes[0].events] == ["leased", "died", "redriven", "ahead"]
        copy = told.lanes[0].events[-1].message_id
        assert states(await log.message_story(copy)) == {"billing": "ahead"}
        assert (await log.message_story(copy)).lineage == f"{first.id}#1"
        for request_id in ("r3", "r4"):
            held = await lease(billing, request_id, 1)
            ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=held.token, offsets=tuple(held.offsets()))
            await billing.answer("orders", "ann", [ack])
        assert states(await log.message_story(first.id)) == {"billing": "finished", "email": "finished"}


async def test_a_story_of_a_message_that_is_not_there(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")
        await orders.create(1)
        receipt = await orders.publish({"n": 1})
        beyond = receipt.id.rpartition("-")[0] + "-7"
        assert (await log.message_story(beyond)).status == "unknown"
        await orders.purge()
        assert (await log.message_story(receipt.id)).status == "removed"
        delayed = await orders.publish({"n": 2}, delay=3600)
        assert (await log.message_story(delayed.id)).status == "scheduled"
        assert await orders.cancel(delayed.id)
        assert (await log.message_story(delayed.id, topic="orders")).status == "unknown"
        with pytest.raises(TopicNotFound, match="No topic of this environment has message 77-0-1"):
            await log.message_story("77-0-1")
        await log.topic("other").create(1)
        with pytest.raises(TopicNotFound, match="Topic 'other' does not have message"):
            await log.message_story(receipt.id, topic="other")
        with pytest.raises(InvalidRequest, match="is not a message id"):
            await log.message_story("orders")


async def test_messages_that_wait_and_a_discarded_one(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing = log.topic("orders"), log.group("billing")
        await orders.create(1)
        receipts = await orders.publish_many([lakelog.Outgoing({"n": n}, key="one") for n in range(3)])
        held = await lease(billing, "r1", 1)
        nack = LeaseAnswer(verb=Verb.NACK, partition=0, token=held.token, offsets=(0,), delay_ms=3_600_000)
        await billing.answer("orders", "ann", [nack])
        assert states(await log.message_story(receipts[0].id)) == {"billing": MessageState.WAITING}
        await log.topic("orders").seek("billing", to="earliest")
        held = await lease(billing, "r2", 1)
        fail = LeaseAnswer(verb=Verb.FAIL, partition=0, token=held.token, offsets=(0,), reason="bad")
        await billing.answer("orders", "ann", [fail])
        await billing.dead_letters().discard(receipts[0].id)
        (lane,) = (await log.message_story(receipts[0].id)).lanes
        assert (lane.state, [event.kind for event in lane.events]) == (
            "discarded",
            ["leased", "failed", "leased", "died", "discarded"],
        )


async def test_dead_letters_by_cause(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, billing = log.topic("orders"), log.group("billing")
        await orders.create(1)
        await orders.publish_many([{"n": n} for n in range(5)])
        held = await lease(billing, "r1", 5)
        answers = [
            LeaseAnswer(
                verb=Verb.FAIL,
                partition=0,
                token=held.token,
                offsets=(n,),
                reason=f"ValueError: no order {n}" if n else "TimeoutError",
            )
            for n in range(5)
        ]
        await billing.answer("orders", "ann", answers)
        found = await billing.dead_letters().clusters()
        assert (found.examined, found.has_more) == (5, False)
        assert [(each.pattern, each.count) for each in found.clusters] == [
            ("ValueError: no order <n>", 4),
            ("TimeoutError", 1),
        ]
        one = await billing.dead_letters("orders").clusters(limit=1)
        assert (one.examined, one.has_more, one.clusters) == (5, True, found.clusters[:1])
        some = await billing.dead_letters("orders").where(error="order").clusters()
        assert (some.examined, some.has_more, some.clusters) == (4, False, found.clusters[:1])
        cluster = billing.dead_letters().cluster(found.clusters[1].fingerprint)
        assert [letter.error for letter in await cluster.list()] == ["TimeoutError"]
        assert await cluster.discard() == 1
        assert (await billing.dead_letters().cluster(found.clusters[0].fingerprint).redrive()).redriven == 4
