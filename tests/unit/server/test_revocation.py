"""The end of a token: streams, long polls and cached grants end with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lakelog.errors import Unavailable
from lakelog.model.token import Token, hash_secret
from lakelog.model.topic import Scope
from lakelog.server import auth
from lakelog.server.auth import Authenticator
from lakelog.storage.memory import MemoryCatalog
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import World, waits, working, world

QUERY = "topic=jobs&group=billing&owner=w1&start_from=earliest&max_in_flight=10"
BUSY_SECONDS = 2 * auth.POSITIVE_SECONDS
"""Twice the time, for a busy machine."""


async def _revoke(made: World, secret: str) -> None:
    found = await made.engine.catalog.token_find(hash_secret(secret))
    assert found is not None and await made.engine.catalog.token_revoke(found[0], found[1].id)


def _stream(made: World, secret: str, sent: list[dict[str, Any]]) -> asyncio.Task[Any]:
    accept = {"accept": "application/x-ndjson"}
    return asyncio.create_task(
        made.call("GET", "/v1/consume", query=QUERY, headers=accept, token=secret, sent=sent, gone=asyncio.Event())
    )


async def test_a_pushed_stream_ends_within_two_seconds_of_the_revocation() -> None:
    async with working() as made:
        secret, sent = await made.make_token(), list[dict[str, Any]]()
        stream = _stream(made, secret, sent)
        await eventually_async(lambda: waits(made))
        await _revoke(made, secret)
        reply = await asyncio.wait_for(stream, BUSY_SECONDS)
        assert msgspec.json.decode(reply.body.splitlines()[-1])["error"]["code"] == "not_authenticated"
        assert (await made.call("GET", "/v1/topics", token=secret)).status == 401


async def test_a_busy_stream_ends_too_and_its_unsent_messages_are_released() -> None:
    async with working() as made:
        secret, sent = await made.make_token(), list[dict[str, Any]]()
        stream = _stream(made, secret, sent)
        number = 0

        async def answer_all() -> None:
            nonlocal number
            while not stream.done():
                assert (await made.publish("jobs", {"value": number})).status == 200
                lines = b"".join(each.get("body", b"") for each in sent).splitlines()
                for message in map(msgspec.json.decode, filter(None, lines[number:])):
                    if "offset" in message:
                        body = {"topic": "jobs", "group": "billing", "owner": "w1", "partition": 0}
                        await made.call("POST", "/v1/ack", json={**body, "offset": message["offset"]})
                number += 1
                await asyncio.sleep(0)

        answering = asyncio.create_task(answer_all())
        await eventually_async(lambda: len(sent) > 3)
        await _revoke(made, secret)
        await asyncio.wait_for(stream, BUSY_SECONDS)
        await answering


async def test_a_stream_ends_when_its_token_expires() -> None:
    async with working() as made:
        secret = await made.make_token(expires_at=datetime.now(UTC) + timedelta(seconds=0.5))
        reply = await asyncio.wait_for(_stream(made, secret, []), 10)
        assert b"not_authenticated" in reply.body


@pytest.mark.parametrize(
    ("method", "path", "query", "json"),
    [
        ("POST", "/v1/consume", "", {"topic": "jobs", "group": "g", "owner": "o", "wait_ms": 20_000}),
        ("GET", "/v1/topics/jobs/partitions/0/messages", "wait_ms=20000", None),
    ],
)
async def test_long_polls_end(method: str, path: str, query: str, json: object) -> None:
    async with working() as made:
        secret = await made.make_token()
        poll = asyncio.create_task(made.call(method, path, query=query, json=json, token=secret))
        await asyncio.sleep(0.05)
        assert not poll.done()
        await _revoke(made, secret)
        reply = await asyncio.wait_for(poll, 10)
        assert (reply.status, reply.json["code"]) == (401, "not_authenticated")


async def test_a_token_in_use_is_refused_within_two_seconds() -> None:
    async with world() as made:
        secret = await made.make_token()
        assert (await made.publish("orders", {"value": 1}, token=secret)).status == 200
        await _revoke(made, secret)
        revoked = time.monotonic()
        while (await made.publish("orders", {"value": 1}, token=secret)).status == 200:
            assert time.monotonic() - revoked < BUSY_SECONDS
            await asyncio.sleep(0.02)


class _Counting(MemoryCatalog):
    def __init__(self) -> None:
        super().__init__()
        self.single = 0
        self.together: list[int] = []
        self.is_down = False

    async def token_find(self, token_hash: bytes) -> tuple[Scope, Token] | None:
        self.single += 1
        return await super().token_find(token_hash)

    async def tokens_find(self, token_hashes: Sequence[bytes]) -> dict[bytes, tuple[Scope, Token]]:
        if self.is_down:
            raise Unavailable("down")
        self.together.append(len(token_hashes))
        return await super().tokens_find(token_hashes)


async def test_tokens_in_use_are_read_together_and_no_call_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auth.FRESH_SECONDS + auth.REFRESH_SECONDS < auth.POSITIVE_SECONDS
    # Long before they expire: the machine may pause.
    monkeypatch.setattr(auth, "FRESH_SECONDS", 0.1)
    monkeypatch.setattr(auth, "REFRESH_SECONDS", 0.1)
    catalog = _Counting()
    async with world(catalog=catalog) as made:
        secrets = [await made.make_token() for _ in range(20)]
        authenticator = Authenticator(catalog)
        headers = [f"Bearer {secret}".encode() for secret in secrets]
        for header in headers:
            await authenticator.grant(header)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert all(authenticator.known(header) is not None for header in headers)
            await asyncio.sleep(0.05)
        authenticator.close()
    assert catalog.single == 20
    assert 1 <= len(catalog.together) <= 32 and max(catalog.together) == 20


async def test_a_catalog_that_is_down_ends_no_stream() -> None:
    catalog = _Counting()
    async with world(catalog=catalog) as made:
        secret = await made.make_token()
        authenticator = Authenticator(catalog)
        ended = authenticator.watch(await authenticator.grant(f"Bearer {secret}".encode()))
        catalog.is_down = True
        await asyncio.sleep(1.2)
        assert not ended.done()
        catalog.is_down = False
        await _revoke(made, secret)
        await asyncio.wait_for(ended, 10)
        authenticator.close()


async def test_calls_that_arrive_together_share_the_lookup_of_their_token() -> None:
    """One caller that gives up does not end the lookup of the others."""
    catalog = _Counting()
    async with world(catalog=catalog) as made:
        header = f"Bearer {await made.make_token()}".encode()
        authenticator = Authenticator(catalog)
        calls = [asyncio.create_task(authenticator.grant(header)) for _ in range(500)]
        await asyncio.sleep(0)
        calls.pop(0).cancel()
        grants = await asyncio.gather(*calls)
        authenticator.close()
    assert len(set(map(id, grants))) == 1
    assert catalog.single == 1
