"""The log of a server at its start, and the response to a request that cannot be read."""

from __future__ import annotations

import asyncio
import logging
import socket
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from lakelog.server import ServerSettings
from lakelog.server.protocol import Protocol
from lakelog.server.starting import log_start

HEAD = b"POST /v1/consume HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"


async def _app(scope: object, receive: object, send: object) -> None:
    await asyncio.Event().wait()


async def _told(data: bytes) -> tuple[bytes, bool]:
    """Return what is written for these bytes, and whether the connection is closed."""
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


def test_the_start_line_names_everything_but_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = ServerSettings(
        database_url="postgresql://svc:hunter2@10.0.0.5/lakelog",
        cells={"east": "postgresql://svc:hunter2@10.0.0.6:6000/lakelog"},
        object_store="s3://lake/log",
        workers=4,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        log_start(settings, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    (record,) = caplog.records
    assert record.getMessage().partition(" listens on ")[2] == (
        f"{url} (database 10.0.0.5:5432/lakelog, cell east 10.0.0.6:6000/lakelog, object store s3://lake/log, "
        "authentication on, 4 workers)."
    )
    assert vars(record)["event"] == "server_started" and "hunter2" not in str(vars(record))
    assert vars(record)["fields"]["cells"] == {"east": "10.0.0.6:6000/lakelog"}
