"""What a connection answers when a request cannot be read."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from lakelog.server.serving import Protocol

HEAD = b"POST /v1/consume HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"


async def _app(scope: object, receive: object, send: object) -> None:
    await asyncio.Event().wait()


async def _told(data: bytes) -> tuple[bytes, bool]:
    """What is written for these bytes, and whether the connection is closed."""
    config = uvicorn.Config(_app, http=Protocol, lifespan="off", log_config=None)
    config.load()
    protocol, transport = Protocol(config, ServerState(), {}), Mock()
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    protocol.connection_made(transport)
    protocol.data_received(data)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    return b"".join(call.args[0] for call in transport.write.call_args_list), transport.close.called


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01 what is this\r\n\r\n", HEAD.replace(b"/v1", b"://["), HEAD.replace(b"/v1", b"/\xff")]
)
async def test_what_is_no_request_is_refused(data: bytes) -> None:
    said, closed = await _told(data)
    assert said.startswith(b"HTTP/1.1 400 ") and closed


@pytest.mark.parametrize("step", ["on_header", "on_headers_complete", "on_body"])
async def test_a_request_that_the_server_could_not_read_is_not_called_invalid(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its caller would give up what is valid; a closed connection is tried again."""

    def fails(self: Protocol, *_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Protocol, step, fails)
    assert await _told(HEAD + b"{}") == (b"", True)
