"""A connection writes a response in one piece."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.server.harness import world
from tests.unit.server.wires import Wire


async def _written(data: bytes) -> list[bytes]:
    """Return what is written for these bytes until the response is complete, write by write."""
    async with world(authenticate=False) as made:
        wire = Wire(made.app)
        await wire.answers(data)
        wire.hang_up()
        await asyncio.gather(*wire.state.tasks)
    return wire.writes


@pytest.mark.parametrize("path", [b"/healthz", b"/v1/topics", b"/nowhere"])
async def test_an_answer_is_one_write(path: bytes) -> None:
    (whole,) = await _written(b"GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
    head, _, body = whole.partition(b"\r\n\r\n")
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head + b"\r\n"


async def test_a_head_request_is_answered_with_the_head() -> None:
    (head,) = await _written(b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ") and head.endswith(b"\r\n\r\n")


async def test_an_answer_without_a_body_is_sent() -> None:
    written = await _written(b"DELETE /v1/topics/orders HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert b"".join(written).startswith(b"HTTP/1.1 204 ")
