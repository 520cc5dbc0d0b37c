"""What callers without a valid token learn from any route: no addresses, buckets or texts of internal failures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lakelog.errors import Unavailable
from lakelog.server.routing import Row
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.wire.operations import OPERATIONS
from lakelog.wire.operations.operation import PUBLIC
from tests.unit.server.harness import World, world

SECRETS = (b"pg-7", b":5432", b"secret-bucket", b"svc", b"hunter2", b"10.0.0.5", b"pg_hba")
REASON = "No connection to svc:hunter2@pg-7.internal:5432 (10.0.0.5) and s3://secret-bucket/prefix (pg_hba.conf)."
BODY = b'{"topic": "orders", "group": "g", "owner": "o"}'
TOKENS = [None, "lkl_wrong", "not ascii ä", "x" * 600]


class _Away(MemoryCatalog):
    """A catalog whose database fails, with an error of Lakelog or any other."""

    error: Exception = Unavailable(REASON, unreachable="database", bucket="secret-bucket", address="pg-7:5432")

    async def token_find(self, token_hash: bytes) -> Any:
        raise self.error

    async def check(self) -> None:
        raise Unavailable(REASON)


class _Unexpected(_Away):
    error = OSError(REASON)


class _AwayStore(MemoryStore):
    async def check(self) -> None:
        raise Unavailable(REASON)


def _path(row: Row) -> str:
    return re.sub(r"\{\w+\}", "1", row.path)


@pytest.mark.parametrize("catalog", [MemoryCatalog, _Away, _Unexpected])
async def test_no_route_tells_a_stranger_about_the_inside(catalog: type[MemoryCatalog]) -> None:
    async with world(catalog=catalog(), store=_AwayStore()) as made:
        for row in OPERATIONS:
            for token in TOKENS:
                await _check(made, row, token)


async def _check(made: World, row: Row, token: str | None) -> None:
    headers = {"content-type": "application/json"}
    reply = await made.call(row.method, _path(row), body=BODY, token=token, headers=headers)
    shown = reply.body + repr(reply.headers).encode()
    assert not [secret for secret in SECRETS if secret in shown], (row.name, token, reply)
    if row.rights is PUBLIC:
        assert reply.status in (200, 503)
    else:
        assert reply.status in (401, 500, 503), (row.name, token, reply)


async def test_paths_that_do_not_exist_tell_nothing_either() -> None:
    async with world(catalog=_Away(), store=_AwayStore()) as made:
        for method, path in (("GET", "/v1/nothing"), ("PATCH", "/v1/topics"), ("GET", "/../etc/passwd")):
            reply = await made.call(method, path, token=None)
            assert reply.status in (404, 405)
            assert not [secret for secret in SECRETS if secret in reply.body]


async def test_a_caller_with_a_token_learns_the_reason() -> None:
    """It helps those who run the system, and the tests above would pass if no reason was ever shown."""

    class AwayLater(MemoryCatalog):
        async def topic_list(self, *args: Any, **kwargs: Any) -> Any:
            raise Unavailable(REASON)

    async with world(catalog=AwayLater()) as made:
        reply = await made.call("GET", "/v1/topics")
        assert reply.status == 503 and b"pg-7.internal" in reply.body
