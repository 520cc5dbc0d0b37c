"""The logger of a delivery names the message, in the text and in the fields of each record."""

from __future__ import annotations

import logging

import pytest

import lakelog


def test_a_handler_logs_with_the_message_that_it_handles(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lakelog.delivery"), lakelog.connect("memory://") as log:
        orders = log.topic("orders")
        orders.create()
        orders.publish({"total": 25})
        with log.consumer("orders", group="billing", start_from="earliest") as consumer:
            delivery = consumer.next(timeout=30)
            assert delivery is not None
            delivery.log.warning("charging %s at 100%%", 25, extra={"shop": "north", "attempt": 7})
            delivery.nack(delay=0)
            (again,) = consumer.batch(1, timeout=30)
            again.log.info("again")
            again.ack()
        with log.consumer("orders", group="cursor", kind="cursor", start_from="earliest") as consumer:
            read = consumer.next(timeout=30)
            assert read is not None
            read.log.info("read")
    first, second, third = (record for record in caplog.records if record.name == "lakelog.delivery")
    assert first.getMessage() == "orders/billing message 0:0 (attempt 1): charging 25 at 100%"
    assert second.getMessage() == "orders/billing message 0:0 (attempt 2): again"
    assert third.getMessage() == "orders/cursor message 0:0 (attempt 1): read"
    names = ("topic", "partition", "offset", "group", "attempt", "message_id")
    assert [vars(second)[name] for name in names] == ["orders", 0, 0, "billing", 2, delivery.id]
    assert (vars(first)["shop"], vars(first)["attempt"]) == ("north", 7), "fields of the caller win"
    assert (first.levelname, first.module) == ("WARNING", "test_delivery_log"), "the line of the caller"


async def test_an_async_delivery_without_a_group_has_a_logger_too(caplog: pytest.LogCaptureFixture) -> None:
    async with lakelog.connect_async("memory://") as log:
        orders = log.topic("orders")
        await orders.create()
        async with log.consumer("orders") as consumer:
            await orders.publish(b"x")
            delivery = await consumer.next(timeout=30)
            assert delivery is not None
            with caplog.at_level(logging.INFO, "lakelog.delivery"):
                delivery.log.info("seen")
    (record,) = (record for record in caplog.records if record.name == "lakelog.delivery")
    assert record.getMessage() == "orders message 0:0 (attempt 1): seen"
    assert not hasattr(record, "group")


@pytest.mark.parametrize("text", ["soon", "-1", "inf"])
def test_an_interval_of_retention_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_RETENTION_SECONDS", text)
    with pytest.raises(lakelog.errors.InvalidRequest, match="LAKELOG_RETENTION_SECONDS"):
        lakelog.connect("memory://")
