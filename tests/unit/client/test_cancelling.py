"""Cancelling `send` and `flush` loses nothing that was taken; nothing that was not taken goes out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.kit.waiting import eventually_async
from tests.unit.client.faulty import Fault, FaultyTransport, client_of


async def test_a_cancelled_send_was_not_taken() -> None:
    transport = FaultyTransport()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        producer = topic.producer(max_buffer_bytes=250, linger=0)
        transport.faults.extend([Fault.UNAVAILABLE] * 100_000)
        await producer.send(b"a")
        await producer.send(b"b")
        waiting = asyncio.create_task(producer.send(b"c"))
        await eventually_async(lambda: transport.calls > 3)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        transport.faults.clear()
        await producer.close()
        assert [message.raw async for message in topic.read()] == [b"a", b"b"]


async def test_a_cancelled_flush_loses_nothing() -> None:
    transport = FaultyTransport()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        producer = topic.producer(linger=3600)
        transport.faults.extend([Fault.UNAVAILABLE] * 100_000)
        await producer.send(b"a")
        flushing = asyncio.create_task(producer.flush())
        await eventually_async(lambda: transport.calls > 3)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        assert producer.buffered == 1
        with pytest.raises(TimeoutError):
            await producer.flush(timeout=0.01)
        transport.faults.clear()
        await producer.close()
        assert [message.raw async for message in topic.read()] == [b"a"]


def test_a_loop_that_ends_too_early_is_told_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async def forget() -> None:
        transport = FaultyTransport()
        topic = client_of(transport).topic("t")
        await topic.create()
        producer = topic.producer(linger=0)
        transport.faults.extend([Fault.UNAVAILABLE] * 100_000)
        await producer.send(b"a")
        await producer.send(b"b")

    with caplog.at_level(logging.ERROR, "lakelog"):
        asyncio.run(forget())
    assert "2 messages were NOT published" in caplog.text
    assert caplog.text.count("NOT published") == 1
