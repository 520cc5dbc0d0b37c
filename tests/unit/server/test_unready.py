"""A server that is starting answers health as alive, readiness as not ready, and calls as unavailable."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from lakelog.server import unready


async def ask(port: int, path: str) -> tuple[int, str, dict[str, object]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), head, json.loads(body)


async def test_callers_are_answered_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unready, "AFTER_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with unready.unready(listener):
            alive, ready, call = [await ask(port, path) for path in ("/healthz", "/readyz", "/v1/topics")]
        assert (alive[0], alive[2]["status"]) == (200, "starting")
        assert (ready[0], ready[2]["status"]) == (503, "starting")
        assert (call[0], call[2]["code"]) == (503, "unavailable")
        assert "retry-after: 1" in ready[1]
        # The socket still listens: the server that is ready takes over.
        taken = await asyncio.start_server(lambda _, writer: writer.close(), sock=listener.dup())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        taken.close()


async def test_a_quick_start_leaves_callers_to_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with unready.unready(listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
        accepted, _ = await asyncio.to_thread(listener.accept)
        accepted.close()
        writer.close()
