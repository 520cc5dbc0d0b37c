"""The story of a message: every step in order with owner, error and time, and nothing that did not happen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakelog.coordinator.leasing.acquiring import ALONE_WITHIN_MS
from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import InvalidRequest, TopicNotFound
from lakelog.model.dead_letter_clusters import ClusterQuery, DeadLetterClusters
from lakelog.model.dead_letters import DeadLetterQuery, DiscardRequest, RedriveRequest, Repair
from lakelog.model.fingerprint import fingerprint_of
from lakelog.model.group import Fixed
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import message_id
from lakelog.model.message_story import MessageState, MessageStory, StoryEvent, StoryLane, StoryQuery
from tests.unit.engine.groups.test_summaries import Shop, shop
from tests.unit.engine.support import publish, text

TRACEBACK = 'Traceback (most recent call last):\n  File "/app/shop/pay.py", line 7, in charge\nValueError: bad 17\n'


async def take(made: Shop, owner: str, count: int = 1, group: str = "billing") -> list[Leased]:
    ask = ConsumeRequest(
        topic="orders",
        group=group,
        owner=owner,
        max_messages=count,
        lease_ms=30_000,
        start_from="earliest",
        retries=Fixed(max=2, seconds=10),
    )
    return list((await made.engine.leases.consume(made.scope, ask)).leases)


async def say(made: Shop, owner: str, lease: Leased, verb: Verb, group: str = "billing", **more: Any) -> None:
    answer = LeaseAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=tuple(lease.offsets), **more)
    (result,) = await made.engine.leases.answer(made.scope, "orders", group, owner, [answer])
    assert not isinstance(result, Exception), result


def id_of(made: Shop, offset: int, partition: int = 0) -> str:
    return message_id(made.topic.incarnation, partition, offset)


async def story(made: Shop, id: str, topic: str | None = None) -> MessageStory:
    return await made.engine.stories.tell(made.scope, StoryQuery(message_id=id, topic=topic))


async def lane(made: Shop, id: str, group: str = "billing") -> StoryLane:
    (found,) = [each for each in (await story(made, id)).lanes if each.group == group]
    return found


def kinds(found: StoryLane) -> list[str]:
    return [event.kind for event in found.events]


async def alone_in_partition_0(made: Shop) -> None:
    """Leave one message in the topic, in partition 0."""
    await made.engine.topics.purge(made.scope, "orders")
    await publish(made.engine, made.scope, "orders", text("the one", partition=0))


async def test_nacked_twice_lost_dead_edited_redriven_and_acked() -> None:
    async with shop(exact=True) as made:
        await alone_in_partition_0(made)
        began = made.clock.now
        for owner, reason in (("w-1", "ValueError: bad 17"), ("w-2", "ValueError: bad 18")):
            (lease,) = await take(made, owner)
            made.clock.pass_by(seconds=0.412)
            await say(made, owner, lease, Verb.NACK, reason=reason, traceback=TRACEBACK)
            made.clock.pass_by(seconds=10)
        for owner in ("w-3", "w-4"):
            assert await take(made, owner)
            made.clock.pass_by(seconds=31)
        assert await take(made, "w-5") == [], "it ended two owners, the second one alone with it"
        dead = await lane(made, id_of(made, 6))
        assert (dead.state, kinds(dead)) == (
            MessageState.DEAD,
            ["leased", "failed", "leased", "failed", "leased", "lost", "leased", "died"],
        )
        leased, failed = dead.events[:2]
        assert (leased.owner, leased.at, leased.attempt) == ("w-1", began, 1)
        assert failed == StoryEvent(
            kind="failed",
            text="Attempt 1 failed after 412 ms.",
            message_id=id_of(made, 6),
            at=began + timedelta(seconds=0.412),
            owner="w-1",
            attempt=1,
            failures=1,
            next_at=began + timedelta(seconds=10.412),
            lease_ms=412,
            error="ValueError: bad 17",
            traceback=TRACEBACK,
            fingerprint=str(fingerprint_of("ValueError: bad 99", TRACEBACK)),
        )
        assert dead.events[-1].error == "Its owner 'w-4' was lost while it held no other message."
        # Edited and redriven: the copy has another id, and the story goes on.
        made.clock.pass_by(seconds=60)
        redriven_at = made.clock.now
        repaired = {id_of(made, 6): Repair(value=b"mended")}
        await made.engine.dead_letters.redrive(made.scope, RedriveRequest(group="billing", repaired=repaired))
        (lease,) = await take(made, "w-5")
        await say(made, "w-5", lease, Verb.NACK, reason="KeyError: 'x'")
        made.clock.pass_by(seconds=10)
        (lease,) = await take(made, "w-6")
        made.clock.pass_by(seconds=1)
        await say(made, "w-6", lease, Verb.ACK)
        told = await story(made, id_of(made, 6))
        (found,) = told.lanes
        assert (told.status, told.appended_at, told.topic) == ("published", began, "orders")
        assert kinds(found)[8:] == ["redriven", "leased", "failed", "leased", "acked"]
        assert found.state is MessageState.FINISHED
        redriven, *_, acked = found.events[8:]
        assert (redriven.at, redriven.text) == (redriven_at, f"Redriven as {id_of(made, 7)}.")
        assert (acked.owner, acked.message_id, acked.text) == ("w-6", id_of(made, 7), "Acked by w-6 after 1000 ms.")
        # The copy has the same story, in the group that it was redriven for.
        copy = await story(made, id_of(made, 7), "orders")
        assert copy.lineage == f"{id_of(made, 6)}#1" and copy.lanes == told.lanes


async def test_a_message_that_never_failed_is_appended_and_finished_without_an_owner() -> None:
    async with shop(exact=True) as made:
        await made.answer("billing", await made.lease("billing", 24), Verb.ACK)
        found = await lane(made, id_of(made, 3))
        assert (found.state, kinds(found)) == (MessageState.FINISHED, ["finished"])
        assert found.events[0].owner is None


async def test_the_present_state_of_a_message() -> None:
    async with shop(exact=True) as made:
        await alone_in_partition_0(made)
        await publish(made.engine, made.scope, "orders", text("k", partition=0, key=b"k"))
        await publish(made.engine, made.scope, "orders", text("k", partition=0, key=b"k"))
        leases = await take(made, "w-1", 9)
        (lease,) = leases
        found = await lane(made, id_of(made, 6))
        assert (found.state, kinds(found), found.events[0].owner) == (MessageState.LEASED, ["leased"], "w-1")
        answer = LeaseAnswer(verb=Verb.NACK, partition=0, token=lease.token, offsets=(7,), delay_ms=60_000)
        await made.engine.leases.answer(made.scope, "orders", "billing", "w-1", [answer])
        waiting = await lane(made, id_of(made, 7))
        assert (waiting.state, kinds(waiting)) == (MessageState.WAITING, ["leased", "failed", "waiting"])
        assert waiting.events[-1].next_at == made.clock.now + timedelta(seconds=60)
        await publish(made.engine, made.scope, "orders", text("z", partition=0))
        await take(made, "w-1", 9)
        assert (await lane(made, id_of(made, 8))).state is MessageState.BLOCKED
        await publish(made.engine, made.scope, "orders", text("new", partition=0))
        ahead = await lane(made, id_of(made, 10))
        assert (ahead.state, ahead.events[0].text) == (
            MessageState.AHEAD,
            "Not considered yet: 0 messages of the partition are before it.",
        )


async def test_a_lost_message_that_is_then_acked() -> None:
    async with shop(exact=True) as made:
        await alone_in_partition_0(made)
        await publish(made.engine, made.scope, "orders", text("other", partition=0))
        await take(made, "w-1", 2)
        made.clock.pass_by(seconds=31)
        (lease,) = await take(made, "w-2")
        await say(made, "w-2", lease, Verb.ACK)
        found = await lane(made, id_of(made, 6))
        assert kinds(found) == ["leased", "lost", "leased", "acked"]
        assert found.events[1].text == "w-1 was lost, or did not answer in time, after 31 s."


async def test_a_lost_message_that_is_then_delivered_together_with_others() -> None:
    async with shop(exact=True) as made:
        await alone_in_partition_0(made)
        await publish(made.engine, made.scope, "orders", text("other", partition=0))
        await take(made, "w-1", 9)
        made.clock.pass_by(seconds=25)
        await publish(made.engine, made.scope, "orders", text("held", partition=1))
        assert await take(made, "w-2"), "an owner that holds something gets no suspect at first"
        made.clock.pass_by(seconds=6)
        assert await take(made, "w-2", 2) == []
        made.clock.pass_by(seconds=ALONE_WITHIN_MS / 1000)
        (lease,) = await take(made, "w-2", 9)
        assert (list(lease.offsets), lease.suspect) == ([6, 7], False)
        await say(made, "w-2", lease, Verb.ACK)
        for offset in (6, 7):
            found = await lane(made, id_of(made, offset))
            assert kinds(found) == ["leased", "lost", "leased", "acked"]
            assert found.events[-1].owner == "w-2"


async def test_each_group_has_a_lane_of_its_own() -> None:
    async with shop(exact=True) as made:
        await alone_in_partition_0(made)
        (lease,) = await take(made, "w-1")
        await say(made, "w-1", lease, Verb.FAIL, reason="no")
        (other,) = await take(made, "x-1", group="shipping")
        await say(made, "x-1", other, Verb.ACK, group="shipping")
        told = await story(made, id_of(made, 6))
        assert {each.group: (each.state, kinds(each)) for each in told.lanes} == {
            "billing": (MessageState.DEAD, ["leased", "died"]),
            "shipping": (MessageState.FINISHED, ["finished"]),
        }
        await made.engine.dead_letters.discard(made.scope, DiscardRequest(group="billing"))
        gone = await lane(made, id_of(made, 6))
        assert (gone.state, kinds(gone)) == (MessageState.DISCARDED, ["leased", "died", "discarded"])


async def test_a_message_that_retention_removed_is_not_ahead() -> None:
    async with shop() as made:
        await take(made, "w-1", count=4)
        await made.engine.topics.purge(made.scope, "orders")
        found = await lane(made, id_of(made, 5))
        assert (found.state, [event.text for event in found.events]) == (
            MessageState.FINISHED,
            ["Retention removed it before the group finished it."],
        )
        # Then the group goes on behind it.
        await publish(made.engine, made.scope, "orders", *(text("new", partition=each) for each in range(4)))
        made.clock.pass_by(seconds=60)
        await take(made, "w-2", count=30)
        found = await lane(made, id_of(made, 5))
        assert found.state is MessageState.FINISHED
        assert [event.text for event in found.events] == [
            "Finished: acked, left out by the filter, expired, skipped, or removed by retention before it was read."
        ]


async def test_removed_unknown_and_foreign_messages() -> None:
    async with shop(exact=True) as made:
        await made.engine.topics.purge(made.scope, "orders")
        assert (await story(made, id_of(made, 2))).status == "removed"
        assert (await story(made, id_of(made, 99))).status == "unknown"
        with pytest.raises(TopicNotFound, match="No topic of this environment has message"):
            await story(made, "999-0-0")
        with pytest.raises(TopicNotFound, match="Topic 'refunds' does not have"):
            await story(made, id_of(made, 2), "refunds")
        with pytest.raises(TopicNotFound):
            await story(made, id_of(made, 2, partition=77))
        with pytest.raises(InvalidRequest, match="not a message id"):
            await story(made, "x")


# Clusters -------------------------------------------------------------------------------------------------------------


async def bury(made: Shop) -> None:
    """Make dead letters of two causes in two cells."""
    for lease in await take(made, "w-1", 24):
        for offset in lease.offsets:
            reason = f"ValueError: order {offset} of 'ada'" if offset % 3 else f"KeyError: 'n{offset}'"
            answer = LeaseAnswer(
                verb=Verb.FAIL,
                partition=lease.partition,
                token=lease.token,
                offsets=(offset,),
                reason=reason,
                traceback=TRACEBACK if offset % 3 else None,
            )
            await made.engine.leases.answer(made.scope, "orders", "billing", "w-1", [answer])
        made.clock.pass_by(seconds=5)


async def clusters(made: Shop, **asked: Any) -> DeadLetterClusters:
    return await made.engine.clusters.list(made.scope, ClusterQuery(group="billing", **asked))


async def test_clusters_are_counted_over_all_cells_the_largest_first() -> None:
    async with shop(exact=True) as made:
        await bury(made)
        found = await clusters(made)
        assert [(each.count, each.kind, each.pattern, each.frame) for each in found.clusters] == [
            (16, "ValueError", "ValueError: order <n> of <text>", "shop/pay.py in charge"),
            (8, "KeyError", "KeyError: <text>", None),
        ]
        assert (found.examined, found.has_more) == (24, False)
        first = found.clusters[0]
        assert first.topics == ("orders",) and first.last_at - first.first_at == timedelta(seconds=15)
        assert first.example == id_of(made, 5, partition=3) and first.error == "ValueError: order 5 of 'ada'"
        limited = await clusters(made, limit=1, topic="orders")
        assert (len(limited.clusters), limited.has_more) == (1, True)
        assert (await clusters(made, topic="refunds")).clusters == ()
        chosen = await clusters(made, fingerprint=first.fingerprint)
        assert (chosen.clusters, chosen.examined, chosen.has_more) == ((first,), 16, False)


async def test_a_cluster_is_listed_discarded_and_redriven_alone() -> None:
    async with shop(exact=True) as made:
        await bury(made)
        value_error, key_error = (await clusters(made)).clusters
        query = DeadLetterQuery(group="billing", fingerprint=key_error.fingerprint, limit=5)
        page = await made.engine.dead_letters.list(made.scope, query)
        assert len(page.letters) == 5 and {each.error[:8] for each in page.letters} == {"KeyError"}
        dry = RedriveRequest(group="billing", fingerprint=key_error.fingerprint, where="partition = 1", dry_run=True)
        assert (await made.engine.dead_letters.redrive(made.scope, dry)).redriven == 2
        discard = DiscardRequest(group="billing", fingerprint=key_error.fingerprint)
        assert (await made.engine.dead_letters.discard(made.scope, discard)).discarded == 8
        redrive = RedriveRequest(group="billing", fingerprint=value_error.fingerprint)
        assert (await made.engine.dead_letters.redrive(made.scope, redrive)).redriven == 16
        assert (await clusters(made)).clusters == ()
        with pytest.raises(InvalidRequest, match="not both"):
            DiscardRequest(group="billing", fingerprint=key_error.fingerprint, message_ids=("1-0-0",))
