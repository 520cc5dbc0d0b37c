"""A busy server's health, what strangers learn from errors, and websites that call a server without authentication."""

from __future__ import annotations

import msgspec
import pytest

from lakelog.errors import Unavailable
from lakelog.model.token import Token
from lakelog.model.topic import Scope
from lakelog.server import traffic
from lakelog.storage.memory import MemoryCatalog
from tests.unit.server.harness import world
from tests.unit.server.wires import Wire


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_server_without_room_for_calls_is_healthy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_IN_FLIGHT", 0)
    async with world() as made:
        assert (await made.call("GET", "/v1/topics")).status == 429
        assert (await made.call("GET", path, token=None)).status == 200


class _Down(MemoryCatalog):
    async def token_find(self, token_hash: bytes) -> tuple[Scope, Token] | None:
        raise Unavailable("No connection to db-7.internal:5432 and s3://secret-bucket/prefix.", bucket="secret-bucket")


async def test_a_caller_without_a_valid_token_learns_no_addresses() -> None:
    async with world(catalog=_Down()) as made:
        reply = await made.call("GET", "/v1/topics")
    assert (reply.status, reply.json["code"]) == (503, "unavailable")
    assert reply.headers["retry-after"] == "1"
    assert b"internal" not in reply.body and b"secret" not in reply.body


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebind.evil.example:8080"},
        {"host": "10.0.0.7"},
        {"host": "localhost:8080", "origin": "https://evil.example"},
        {"host": "localhost:8080", "origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"host": "[broken"},
    ],
)
async def test_a_server_without_authentication_refuses_websites(headers: dict[str, str]) -> None:
    async with world(authenticate=False) as made:
        reply = await made.call("POST", "/v1/topics/orders/purge", token=None, headers=headers)
        assert (reply.status, reply.json["code"]) == (403, "not_allowed")
        # The fast path of publishes too.
        body = msgspec.json.encode({"messages": [{"value": 1}]})
        fields = {"content-type": "application/json", "content-length": str(len(body)), "host": "localhost", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        wire = Wire(made.app)
        written = await wire.answers(f"POST /v1/topics/orders/messages HTTP/1.1\r\n{lines}\r\n".encode() + body)
        assert written.startswith(b"HTTP/1.1 403 ")
        assert (await made.call("GET", "/healthz", token=None, headers=headers)).status == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"host": "localhost:8080"}, {"host": "127.0.0.1", "origin": "http://[::1]:3000"}, {"host": "[::1]:8080"}],
)
async def test_local_callers_are_accepted(headers: dict[str, str]) -> None:
    async with world(authenticate=False) as made:
        assert (await made.call("POST", "/v1/topics/orders/purge", token=None, headers=headers)).status == 200


async def test_with_authentication_any_host_is_accepted() -> None:
    async with world() as made:
        headers = {"host": "lakelog.example", "origin": "https://console.example"}
        assert (await made.call("GET", "/v1/topics", headers=headers)).status == 200
