"""A relay moves the messages of an outbox on PostgreSQL to the log: those of committed transactions, each once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

import lakelog
from lakelog.engine.outbox.relay import NoOutbox, RelayReplaced
from lakelog.errors import OutcomeUnknown
from lakelog.model.message import Message
from lakelog.model.schema import SetSchemaRequest
from lakelog.storage.postgres import PostgresOutbox, install_outbox
from tests.integration.outbox_kit import OutboxLog, opened, poll_until_idle


async def test_committed_messages_are_moved_and_rolled_back_ones_are_not(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        async with log.caller.transaction():
            await log.publish("orders", "a")
            await log.publish("orders", "b")
        with pytest.raises(ZeroDivisionError):
            async with log.caller.transaction():
                await log.publish("orders", "lost")
                raise ZeroDivisionError
        async with log.caller.transaction():
            await log.publish("orders", "c")
            with pytest.raises(ZeroDivisionError):
                async with log.caller.transaction():
                    await log.publish("orders", "lost in a savepoint")
                    raise ZeroDivisionError
            async with log.caller.transaction():
                await log.publish("orders", "d")
        assert await relay.poll() == 4
        assert await relay.poll() == 0
        assert await log.values(topic) == ["a", "b", "c", "d"]
        await relay.close()


async def test_an_open_transaction_delays_only_its_own_messages(database: str, second_database: str) -> None:
    """The outbox is on another cluster than the log."""
    async with opened(database, second_database) as log:
        topic = await log.create()
        relay = log.relay()
        other = await asyncpg.connect(second_database)
        open_ended = other.transaction(isolation="repeatable_read")
        await open_ended.start()
        await other.fetchval("select lakelog_outbox.publish('orders', 'late', content_type => 'text/plain')")
        for number in range(3):
            await log.publish("orders", f"{number}")
            assert await relay.poll() == 1
            await relay.tidy()
        await open_ended.commit()
        assert await relay.poll() == 1
        assert await relay.poll() == 0
        assert await log.values(topic) == ["0", "1", "2", "late"]
        await other.close()
        await relay.close()


async def test_tables_are_emptied_when_their_messages_are_moved(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        await log.publish("orders", "0")
        assert await poll_until_idle(relay) == 1
        await relay.tidy()
        assert await log.caller.fetchval("select active from lakelog_outbox.settings") == 1
        async with log.caller.transaction():
            await log.publish("orders", "1")
            # Its table takes new messages, and the other one can be emptied.
            await relay.tidy()
            assert await log.caller.fetchval("select count(*) from lakelog_outbox.message_0") == 0
        await relay.tidy()
        assert await log.caller.fetchval("select count(*) from lakelog_outbox.message") == 1, "it was not moved"
        assert await poll_until_idle(relay) == 1
        for _ in range(3):
            await relay.tidy()
        assert await log.caller.fetchval("select count(*) from lakelog_outbox.message") == 0
        assert await log.values(topic) == ["0", "1"]
        await relay.close()


async def test_a_caller_with_an_old_snapshot_publishes_into_an_emptied_table(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        other = await asyncpg.connect(database)
        transaction = other.transaction(isolation="repeatable_read")
        await transaction.start()
        await other.fetchval("select count(*) from lakelog_outbox.settings")
        await log.publish("orders", "first")
        await poll_until_idle(relay)
        await relay.tidy()
        await relay.tidy()
        await other.fetchval("select lakelog_outbox.publish('orders', 'old', content_type => 'text/plain')")
        await transaction.commit()
        await poll_until_idle(relay)
        assert await log.values(topic) == ["first", "old"]
        await other.close()
        await relay.close()


async def test_a_new_relay_repeats_nothing_and_the_old_one_is_refused(database: str, second_database: str) -> None:
    """The log has two cells, and the outbox is in the database of one of them."""
    async with opened(database, second_database, {"second": second_database}) as log:
        topic = await log.create(partitions=4)
        one, other = log.relay(), log.relay()
        for number in range(20):
            await log.publish("orders", f"{number}", key=f"{number % 7}")
        assert await one.poll() == 20
        await log.publish("orders", "20")
        assert await other.poll() == 1
        await log.publish("orders", "21")
        with pytest.raises(RelayReplaced):
            await one.poll()
        assert await other.poll() == 1
        assert sorted(map(int, await log.values(topic))) == list(range(22))
        await one.close()
        await other.close()


async def test_a_lost_answer_of_the_log_publishes_nothing_twice(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        store = log.engine.cells[0].relays
        append = store.relay

        async def lost(*arguments: object) -> object:
            await append(*arguments)  # type: ignore[arg-type]
            raise OutcomeUnknown("The connection was lost.")

        monkeypatch.setattr(store, "relay", lost)
        await log.publish("orders", "a")
        with pytest.raises(OutcomeUnknown):
            await relay.poll()
        monkeypatch.undo()
        await log.publish("orders", "b")
        assert await relay.poll() == 1
        assert await log.values(topic) == ["a", "b"]
        await relay.close()


async def test_refused_messages_are_rejected_and_delay_no_others(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        await log.publish("orders", "a")
        gone = await log.publish("missing", "poison")
        await log.publish("orders", "poison", partition=7)
        await log.caller.fetchval(
            "select lakelog_outbox.publish('orders', '1', headers => '{\"number\": 1}', content_type => 'text/plain')"
        )
        await log.publish("orders", "poison", key="x" * 2000)
        await log.publish("orders", "b")
        assert await relay.poll() == 6
        assert await log.values(topic) == ["a", "b"]
        assert (relay.relayed, relay.rejected) == (2, 4)
        listed = await log.engine.catalog.rejected.rejected_list(log.scope)
        assert [each.code for each in listed] == [
            "topic_not_found",
            "partition_not_found",
            "invalid_request",
            "too_large",
        ]
        assert listed[0].message_id == gone
        await relay.close()
        again = log.relay()
        assert await again.poll() == 0, "a rejected message is not looked at again"
        await again.close()


async def test_fields_that_python_cannot_represent_delay_no_others(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        await log.publish("orders", "a")
        for given in (
            "deliver_at => '0044-03-15 BC'",
            "deliver_at => '20000-01-01'",
            "deliver_at => 'infinity', idempotency_key => 'one'",
            "headers => '{\"number\": 1e5000}'",
            "headers => jsonb_build_object('deep', (repeat('[', 2000) || repeat(']', 2000))::jsonb)",
        ):
            await log.caller.fetchval(
                f"select lakelog_outbox.publish('orders', 'b', content_type => 'text/plain', {given})"
            )
        await log.publish("orders", "c")
        assert await relay.poll() == 7
        assert await log.values(topic) == ["a", "b", "c"], "a time that has passed is no delay"
        listed = await log.engine.catalog.rejected.rejected_list(log.scope)
        assert [each.code for each in listed] == ["invalid_request"] * 4


async def test_values_that_do_not_match_the_schema_are_rejected(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create(partitions=2)
        await log.engine.schemas.set(log.scope, SetSchemaRequest(topic="orders", schema={"required": ["id"]}))
        relay = log.relay()
        for value, key in (("{}", "a"), ('{"id": 1}', "a"), ('{"id": 2}', "b"), ("text", "b"), ("[", "c")):
            await log.caller.fetchval(
                "select lakelog_outbox.publish('orders', $1, $2, content_type => 'application/json')", value, key
            )
        await log.caller.fetchval(
            "select lakelog_outbox.publish('orders', '{}', idempotency_key => 'k', content_type => 'application/json')"
        )
        assert await poll_until_idle(relay) == 6
        assert sorted(await log.values(topic)) == ['{"id": 1}', '{"id": 2}']
        listed = await log.engine.catalog.rejected.rejected_list(log.scope)
        assert [each.code for each in listed] == ["schema_violation"] * 4
        await relay.close()


async def test_messages_with_idempotency_keys_are_published_once(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        await log.publish("orders", "a", key="k")
        await log.publish("orders", "b", key="k", idempotency_key="one")
        await log.publish("orders", "b", key="k", idempotency_key="one")
        await log.publish("orders", "c", key="k")
        await log.publish("orders", "other", key="k", idempotency_key="one")
        assert await relay.poll() == 5
        assert await log.values(topic) == ["a", "b", "c"]
        rejected = await log.engine.catalog.rejected.rejected_list(log.scope)
        assert [each.code for each in rejected] == ["idempotency_conflict"]
        await relay.close()


async def test_a_bulk_of_messages_keeps_its_order(database: str) -> None:
    """More than a page, in one transaction, while others commit."""
    async with opened(database, database) as log:
        topic = await log.create(partitions=2)
        relay = log.relay()
        await log.publish("orders", "begin")
        await relay.poll()
        await log.caller.execute(
            "select lakelog_outbox.publish('orders', n::text, key => (n % 10)::text, content_type => 'text/plain') "
            "from generate_series(1, 25000) n"
        )
        moving = asyncio.create_task(relay.poll())
        await log.publish("orders", "end")
        await moving
        await poll_until_idle(relay)
        messages = await log.messages(topic)
        assert len(messages) == 25_002
        for key in range(10):
            mine = [int(message.value or b"") for message in messages if message.key == str(key).encode()]
            assert mine == [number for number in range(1, 25_001) if number % 10 == key]
        await relay.close()


async def test_a_message_costs_the_caller_no_compilation(database: str) -> None:
    """PostgreSQL estimates 58 million rows without statistics, and would compile the statement for a second."""
    async with opened(database, database) as log:
        plans: list[str] = []
        log.caller.add_log_listener(lambda _, each: plans.append(each.message))
        await log.caller.execute(
            "load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;"
            "set client_min_messages = log"
        )
        messages = '[{"topic": "orders", "value": "MQ=="}]'
        await log.caller.fetchval("select lakelog_outbox.publish_messages($1)", messages)
        await log.publish("orders", "a")
        await log.caller.execute("set auto_explain.log_min_duration = -1")
        assert any("jsonb_array_elements" in plan for plan in plans)
        assert not [plan for plan in plans if "JIT:" in plan]


async def test_a_restored_dump_is_moved_once(database: str) -> None:
    """Its transaction ids are those of another cluster, and one of its messages is in the log already."""
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        await log.publish("orders", "moved")
        await relay.poll()
        await log.publish("orders", "new")
        await log.caller.execute("update lakelog_outbox.message set transaction = transaction + 1000000000")
        await relay.close()
        restored = log.relay()
        assert await restored.poll() == 1
        for _ in range(3):
            assert await restored.poll() == 0
        await restored.tidy()
        await restored.tidy()
        assert await log.caller.fetchval("select count(*) from lakelog_outbox.message") == 0
        assert await log.values(topic) == ["moved", "new"]
        await restored.close()


async def test_a_number_that_is_used_twice_is_another_message(database: str) -> None:
    """A database that lost its last transactions in a failover uses their numbers again."""
    async with opened(database, database) as log:
        topic = await log.create()
        relay = log.relay()
        await log.publish("orders", "one")
        await relay.poll()
        await relay.close()
        await log.caller.execute("truncate lakelog_outbox.message")
        await log.caller.execute("alter sequence lakelog_outbox.message_number restart")
        await log.publish("orders", "other")
        again = log.relay()
        assert await again.poll() == 1
        assert await log.values(topic) == ["one", "other"]
        await again.close()


async def test_the_fields_of_a_message_arrive(database: str) -> None:
    async with opened(database, database) as log:
        topic = await log.create(partitions=3)
        relay = log.relay()
        await log.caller.fetchval(
            "select lakelog_outbox.publish('orders', key => 'a1', value => '{\"total\": 30}', "
            "headers => '{\"h\": \"1\"}', correlation_id => 'c', partition => 2, expires => interval '1 hour', "
            "deliver_at => null)"
        )
        await log.caller.fetchval("select lakelog_outbox.publish('orders', '\\x00ff'::bytea, partition => 2)")
        await log.caller.fetchval("select lakelog_outbox.publish('orders', jsonb '[1]', partition => 2)")
        assert await relay.poll() == 3
        first, second, third = await log.messages(topic)
        assert first.created_at is not None and first.expires_at == first.created_at + timedelta(hours=1)
        assert first == Message(
            value=b'{"total": 30}',
            key=b"a1",
            headers={"h": "1"},
            content_type="application/json",
            correlation_id="c",
            created_at=first.created_at,
            expires_at=first.expires_at,
        )
        assert (second.value, second.content_type) == (b"\x00\xff", None)
        assert (third.value, third.content_type) == (b"[1]", "application/json")
        await relay.close()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("publish('No Name', '1')", "not a valid name"),
        ("publish('orders', 'no json')", "invalid input syntax for type json"),
        ("publish('orders', convert_to(repeat('x', 1048577), 'UTF8'))", "at most 1048576"),
        ("publish('orders', '1', headers => '[]')", "must be a JSON object"),
    ],
)
async def test_a_call_that_can_never_succeed_fails_in_the_callers_transaction(
    database: str, call: str, error: str
) -> None:
    await install_outbox(database)
    caller = await asyncpg.connect(database)
    with pytest.raises(asyncpg.PostgresError, match=error):
        await caller.fetchval(f"select lakelog_outbox.{call}")
    await caller.close()


async def test_a_role_needs_only_the_right_to_call_the_functions(database: str) -> None:
    admin = await asyncpg.connect(database)
    await admin.execute("drop role if exists outbox_caller")
    await admin.execute("create role outbox_caller")
    await install_outbox(database, grant_to="outbox_caller")
    await admin.execute("set role outbox_caller")
    assert str(await admin.fetchval("select lakelog_outbox.publish('orders', '1')")).startswith("outbox-")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await admin.fetch("select * from lakelog_outbox.message")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await admin.fetchval("select lakelog_outbox.rotate()")
    await admin.execute("reset role; drop owned by outbox_caller; drop role outbox_caller")
    await admin.close()


async def test_an_installation_can_be_repeated(database: str) -> None:
    one = await install_outbox(database, project="shop", environment="live")
    other = await install_outbox(database, environment="test")
    assert (other.outbox_id, other.project, other.environment) == (one.outbox_id, "shop", "test")
    assert await install_outbox(database) == other, "an update moves no messages to another environment"
    source = PostgresOutbox(database)
    assert await source.open() == other
    await source.close()


async def test_a_database_without_an_outbox_is_reported(database: str, second_database: str) -> None:
    async with opened(database, database) as log:
        relay = OutboxLog(engine=log.engine, scope=log.scope, url=second_database, caller=log.caller).relay()
        with pytest.raises(NoOutbox, match="lakelog outbox install"):
            await relay.poll()
        await relay.close()


async def test_a_delayed_message_is_scheduled_once(database: str) -> None:
    async with opened(database, database) as log, lakelog.connect_async(database) as client:
        topic = await log.create()
        relay = log.relay()
        async with log.caller.transaction():
            receipt = await client.topic("orders").publish(
                "later", delay=3600, expires=timedelta(minutes=10), transaction=log.caller
            )
        await poll_until_idle(relay)
        await relay.close()
        await log.caller.execute("delete from lakelog.relayed")
        await poll_until_idle(log.relay())
        (waiting,) = await client.topic("orders").scheduled()
        assert waiting.raw == b"later"
        assert await log.caller.fetchval("select expires_ms from lakelog.scheduled") == 600_000, "from the delivery on"
        assert (await client.message(receipt.id)).state == "scheduled"
        assert await log.values(topic) == []
        await log.caller.execute("update lakelog.scheduled set due_at = clock_timestamp()")
        assert await log.engine.scheduled_delivery.deliver_all(0) == 1
        status = await client.message(receipt.id)
        assert (status.state, status.partition, status.offset) == ("published", 0, 0)
