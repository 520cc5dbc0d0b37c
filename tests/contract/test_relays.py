"""Messages of outboxes: appended and recorded in one commit, by the newest relay only."""

from __future__ import annotations

import secrets
from datetime import timedelta

from lakelog.model.outbox import RejectionSource
from lakelog.model.topic import Scope
from lakelog.storage.memory import utcnow
from lakelog.storage.outbox import REJECTED_PID, RelayedAppend, StoredRejection
from lakelog.storage.store import Appended, Refusal, Refused
from tests.contract.stores import Backing
from tests.contract.values import create, new_pids, plain

SCOPE = Scope(project="shop", environment="dev", environment_id=77)


def new_outbox() -> int:
    return secrets.randbelow(1 << 48)


def relayed(pid: int, *marks: tuple[int, int], epoch: int = 0) -> RelayedAppend:
    return RelayedAppend(append=plain(pid, len(marks), epoch=epoch), marks=marks)


async def test_a_relay_appends_messages_and_records_them(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        outbox, (first, second) = new_outbox(), await create(one, 2)
        epoch = await one.relays.epoch_raise(outbox, SCOPE)
        answers = await one.relays.relay(outbox, epoch, [relayed(second, (1, 5), (9, 6)), relayed(first, (4, 7))])
        assert answers is not None
        assert [(answer.pid, answer.base) for answer in answers if isinstance(answer, Appended)] == [
            (second, 0),
            (first, 0),
        ]
        assert await one.relays.relay(outbox, epoch, [relayed(second, (10, 8))])
        asked = [(1, 5), (9, 6), (4, 7), (10, 8), (1, 6), (5, 5), (11, 0)]
        assert await other.relays.relayed(outbox, asked) == {
            (1, 5): (second, 0),
            (9, 6): (second, 1),
            (4, 7): (first, 0),
            (10, 8): (second, 2),
        }
        assert await other.relays.relayed(new_outbox(), asked) == {}
        assert await other.relays.relayed(outbox, []) == {}
        assert [head.next_offset for head in await one.heads_read([first, second])] == [1, 3]


async def test_a_relay_that_was_replaced_writes_nothing(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        outbox, (pid,) = new_outbox(), await create(one)
        old = await one.relays.epoch_raise(outbox, SCOPE)
        new = await other.relays.epoch_raise(outbox, SCOPE)
        assert new > old
        assert await one.relays.relay(outbox, old, [relayed(pid, (1, 1))]) is None
        assert not await one.relays.record(outbox, old, {(2, 2): (pid, 0)})
        assert not await one.relays.reject(outbox, old, SCOPE, {(3, 3): rejection()})
        assert await one.relays.relayed(outbox, [(1, 1), (2, 2), (3, 3)]) == {}
        assert (await one.heads_read([pid]))[0].next_offset == 0
        assert await other.relays.relay(outbox, new, [relayed(pid, (1, 1))])


async def test_a_refused_append_is_not_recorded(backing: Backing) -> None:
    async with backing.store() as store:
        outbox, (pid,), (missing,) = new_outbox(), await create(store), new_pids(1)
        epoch = await store.relays.epoch_raise(outbox, SCOPE)
        answers = await store.relays.relay(outbox, epoch, [relayed(missing, (1, 1)), relayed(pid, (2, 2))])
        assert answers is not None
        assert answers[0] == Refused(pid=missing, refusal=Refusal.MISSING)
        assert set(await store.relays.relayed(outbox, [(1, 1), (2, 2)])) == {(2, 2)}


async def test_positions_and_rejections_are_recorded(backing: Backing) -> None:
    async with backing.store() as store:
        outbox = new_outbox()
        assert await store.relays.environment(outbox) is None
        epoch = await store.relays.epoch_raise(outbox, SCOPE)
        assert await store.relays.environment(outbox) == SCOPE.environment_id
        assert await store.relays.record(outbox, epoch, {(1, 1): (50, 7), (2, 2): (51, 0)})
        assert await store.relays.reject(outbox, epoch, SCOPE, {(3, 3): rejection()})
        assert await store.relays.relayed(outbox, [(1, 1), (2, 2), (3, 3)]) == {
            (1, 1): (50, 7),
            (2, 2): (51, 0),
            (3, 3): (REJECTED_PID, 0),
        }


async def test_records_are_kept_for_a_day_and_while_the_outbox_has_the_message(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        outbox = new_outbox()
        epoch = await store.relays.epoch_raise(outbox, SCOPE)
        await store.relays.record(outbox, epoch, {(1, 1): (50, 7)})
        await pass_by(timedelta(hours=23).total_seconds())
        assert await store.relays.relayed_trim(outbox, utcnow() + timedelta(days=3)) == 0
        await pass_by(timedelta(hours=2).total_seconds())
        await store.relays.record(outbox, epoch, {(2, 2): (50, 8)})
        assert await store.relays.relayed_trim(outbox, utcnow() - timedelta(days=3)) == 0
        assert await store.relays.relayed_trim(outbox, utcnow() + timedelta(days=3)) == 1
        assert set(await store.relays.relayed(outbox, [(1, 1), (2, 2)])) == {(2, 2)}


def rejection() -> StoredRejection:
    return StoredRejection(
        message_id=f"outbox-{secrets.token_hex(4)}",
        source=RejectionSource.OUTBOX,
        topic="orders",
        code="topic_not_found",
        reason="Topic 'orders' does not exist.",
        payload=b"batch",
    )
