"""Grants between servers: what they allow, and which are refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from lakelog.errors import NotAuthenticated
from lakelog.model.token import Right
from lakelog.model.topic import Scope
from lakelog.server import server_grants
from lakelog.server.auth import Grant
from lakelog.server.calls import body_hash
from lakelog.server.server_grants import GRANT_SECONDS, ForwardedCall, ServerGrants, key_id
from lakelog.storage.memory import MemoryCatalog

SCOPE = Scope(project="shop", environment="prod", environment_id=7)
READER = Grant(scope=SCOPE, rights=frozenset({Right.READ}), token="t1", name="billing", token_hash=b"hash")
CALL = ForwardedCall(method="POST", target=b"/v1/consume?repeat=true", client=b"10.0.0.5", home="home-1")
BODY = b'{"topic": "orders"}'


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def _pair(clock: Callable[[], float]) -> tuple[ServerGrants, ServerGrants]:
    """A server that signs, and one that verifies and has not read the keys yet."""
    catalog = MemoryCatalog()
    sender, receiver = (ServerGrants(catalog.groups, now=clock) for _ in range(2))
    await sender.read_keys()
    return sender, receiver


def _signed(sender: ServerGrants, grant: Grant = READER) -> bytes:
    signed = sender.sign(grant, CALL, BODY)
    assert signed is not None
    return signed


async def test_a_grant_carries_the_rights_of_the_caller_and_no_secret() -> None:
    sender, receiver = await _pair(Clock())
    signed = _signed(sender)
    grant, expected = await receiver.verify(signed, CALL)
    assert grant == replace(READER, token_hash=b"")
    assert expected == body_hash(BODY)
    assert b"hash" not in base64.urlsafe_b64decode(signed.partition(b".")[0])


async def test_a_grant_works_once() -> None:
    sender, receiver = await _pair(Clock())
    signed = _signed(sender)
    await receiver.verify(signed, CALL)
    with pytest.raises(NotAuthenticated, match="used before"):
        await receiver.verify(signed, CALL)
    await receiver.verify(_signed(sender), CALL)


async def test_a_used_grant_is_remembered_as_long_as_it_is_valid() -> None:
    clock = Clock()
    sender, receiver = await _pair(clock)
    signed = _signed(sender)
    await receiver.verify(signed, CALL)
    for _ in range(9):
        clock.now += GRANT_SECONDS / 10
        await receiver.verify(_signed(sender), CALL)
        with pytest.raises(NotAuthenticated, match="used before"):
            await receiver.verify(signed, CALL)
    for _ in range(100):
        clock.now += GRANT_SECONDS
        await receiver.verify(_signed(sender), CALL)
    assert sum(map(len, receiver._used)) < 10, "used grants are forgotten when they have expired"


@pytest.mark.parametrize("late", [GRANT_SECONDS, 3600.0, -GRANT_SECONDS - 1, -3600.0])
async def test_an_expired_grant_is_refused(late: float) -> None:
    """Also one from the future: it would be valid for too long."""
    clock = Clock()
    sender, receiver = await _pair(clock)
    signed = _signed(sender)
    clock.now += late
    with pytest.raises(NotAuthenticated, match="expired"):
        await receiver.verify(signed, CALL)


@pytest.mark.parametrize("skew", [0.9 * GRANT_SECONDS, -0.9 * GRANT_SECONDS])
async def test_clocks_may_differ_by_seconds(skew: float) -> None:
    clock = Clock()
    sender, receiver = await _pair(clock)
    signed = _signed(sender)
    clock.now += skew
    await receiver.verify(signed, CALL)


@pytest.mark.parametrize(
    "changed",
    [
        replace(CALL, method="GET"),
        replace(CALL, target=b"/v1/topics/orders/purge"),
        replace(CALL, client=b"10.0.0.6"),
        replace(CALL, home="home-2"),
    ],
)
async def test_a_grant_is_for_one_call_only(changed: ForwardedCall) -> None:
    sender, receiver = await _pair(Clock())
    with pytest.raises(NotAuthenticated, match="does not match the call"):
        await receiver.verify(_signed(sender), changed)


@pytest.mark.parametrize("field", ["rights", "environment_id", "expires_ms", "body", "nonce", "token"])
async def test_a_changed_grant_is_refused(field: str) -> None:
    sender, receiver = await _pair(Clock())
    text, _, mac = _signed(sender).partition(b".")
    payload = msgspec.json.decode(base64.urlsafe_b64decode(text))
    payload[field] = {"rights": ["read", "manage"], "environment_id": 8, "expires_ms": 1 << 50}.get(field, "x")
    changed = base64.urlsafe_b64encode(msgspec.json.encode(payload)) + b"." + mac
    with pytest.raises(NotAuthenticated, match="does not match the call"):
        await receiver.verify(changed, CALL)


@pytest.mark.parametrize("text", [b"", b".", b"x", b"e30=.00", b"\xff\xff.1", b"bnVsbA==." + b"0" * 64])
async def test_what_is_no_grant_is_refused(text: bytes) -> None:
    _, receiver = await _pair(Clock())
    with pytest.raises(NotAuthenticated, match="cannot be read"):
        await receiver.verify(text, CALL)


async def test_grants_of_other_installations_are_refused() -> None:
    stranger, _ = await _pair(Clock())
    _, receiver = await _pair(Clock())
    with pytest.raises(NotAuthenticated, match="key is not known"):
        await receiver.verify(_signed(stranger), CALL)


async def test_a_replaced_key_is_accepted_by_servers_that_have_not_read_it_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, receiver = await _pair(Clock())
    await receiver.verify(_signed(sender), CALL)
    monkeypatch.setattr(server_grants, "ROTATE_SECONDS", 0.0)
    monkeypatch.setattr(server_grants, "LOOK_AGAIN_SECONDS", 0.0)
    before = next(iter(sender._keys))
    old = _signed(sender)
    catalog = sender._catalog
    added = await catalog.server_keys(b"n" * 32, rotate_seconds=0, keep_seconds=3600)
    monkeypatch.setattr(server_grants, "ROTATE_SECONDS", 3600.0)
    await sender.read_keys(older_than=0)
    assert next(iter(sender._keys)) == key_id(added[0]) != before
    await receiver.verify(_signed(sender), CALL)
    await receiver.verify(old, CALL)


async def test_unknown_keys_do_not_make_a_server_read_the_catalog_for_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stranger, _ = await _pair(Clock())
    _, receiver = await _pair(Clock())
    reads = 0
    read = receiver._catalog.server_keys

    async def counted(new: bytes, *, rotate_seconds: float, keep_seconds: float) -> list[bytes]:
        nonlocal reads
        reads += 1
        return await read(new, rotate_seconds=rotate_seconds, keep_seconds=keep_seconds)

    monkeypatch.setattr(receiver._catalog, "server_keys", counted)
    for _ in range(50):
        with pytest.raises(NotAuthenticated):
            await receiver.verify(_signed(stranger), CALL)
    assert reads == 1


async def test_without_keys_nothing_is_signed() -> None:
    assert ServerGrants(MemoryCatalog().groups).sign(READER, CALL, BODY) is None
