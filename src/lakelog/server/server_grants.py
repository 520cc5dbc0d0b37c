"""Grants between servers: a server that forwards a call signs what its caller may do, and never sends the token.

A grant is for one call: its method, target, body and home. It expires after seconds and works once. The keys are in
the catalog, and servers replace them every day.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from lakelog.errors import LakelogError, NotAuthenticated
from lakelog.model.token import Right
from lakelog.model.topic import Scope
from lakelog.reporting import FailureLog
from lakelog.server.auth import Grant
from lakelog.server.calls import body_hash
from lakelog.storage.groups import GroupCatalog

GRANT = b"x-lakelog-grant"
"""The header with a grant. It replaces the caller's token."""
GRANT_SECONDS = 10.0
"""How long a grant is valid, and how much the clocks of servers may differ."""
ROTATE_SECONDS = 86400.0
"""The age at which a key is replaced. Receivers accept it for the same time again."""
READ_KEYS_SECONDS = 60.0
"""How often the keys are read. A receiver also reads them when it gets a grant of an unknown key."""
LOOK_AGAIN_SECONDS = 1.0
_MAX_BYTES = 4096
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedCall:
    """The parts of a call that its grant is bound to, beside the body."""

    method: str
    target: bytes
    client: bytes
    """The address of the caller."""
    home: str
    """The id of the server that the call is for."""

    def bound_to(self, payload: bytes) -> bytes:
        return b"\0".join((self.method.encode(), self.target, self.client, self.home.encode(), payload))


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    expires_ms: int
    nonce: str
    body: str
    environment_id: int
    project: str
    environment: str
    rights: list[Right]
    token: str
    name: str


class ServerGrants:
    """Signs and verifies grants for one server process."""

    def __init__(self, catalog: GroupCatalog, *, now: Callable[[], float] = time.time) -> None:
        self._catalog = catalog
        self._now = now
        self._keys: dict[str, bytes] = {}
        """The keys by id, newest first."""
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._used: tuple[set[str], set[str]] = (set(), set())
        """The nonces of grants that may still be valid: the newer and the older half."""
        self._turned_at = 0.0
        self._refusals = FailureLog("Calls of other servers", "server_grants", _log)

    async def read_keys(self, *, older_than: float = READ_KEYS_SECONDS) -> None:
        """Read the keys if that was longer ago than `older_than` seconds. Replace the newest key if it is old."""
        async with self._reading:
            if time.monotonic() - self._read_at < older_than:
                return
            self._read_at = time.monotonic()
            found = await self._catalog.server_keys(
                secrets.token_bytes(32), rotate_seconds=ROTATE_SECONDS, keep_seconds=2 * ROTATE_SECONDS
            )
            self._keys = {key_id(secret): secret for secret in found}

    def sign(self, grant: Grant, call: ForwardedCall, body: bytes) -> bytes | None:
        """Return the grant of a call as text for its header; None if there is no key."""
        if not self._keys:
            return None
        key, secret = next(iter(self._keys.items()))
        payload = msgspec.json.encode(
            _Payload(
                key=key,
                expires_ms=int((self._now() + GRANT_SECONDS) * 1000),
                nonce=secrets.token_hex(12),
                body=body_hash(body),
                environment_id=grant.scope.environment_id,
                project=grant.scope.project,
                environment=grant.scope.environment,
                rights=sorted(grant.rights),
                token=grant.token,
                name=grant.name,
            )
        )
        return base64.urlsafe_b64encode(payload) + b"." + _mac(secret, call.bound_to(payload))

    async def verify(self, signed: bytes, call: ForwardedCall) -> tuple[Grant, str]:
        """Return the grant, and the hash that the body must have. Raise `NotAuthenticated` unless it is valid."""
        try:
            return await self._verified(signed, call)
        except NotAuthenticated as error:
            self._refusals.failed(error.detail, kind=error.detail)
            raise

    async def _verified(self, signed: bytes, call: ForwardedCall) -> tuple[Grant, str]:
        text, _, mac = signed.partition(b".")
        try:
            payload = base64.urlsafe_b64decode(text[:_MAX_BYTES])
            found = msgspec.json.decode(payload, type=_Payload)
        except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _refused("it cannot be read") from error
        secret = await self._secret(found.key)
        if secret is None:
            raise _refused("its key is not known")
        if not hmac.compare_digest(mac, _mac(secret, call.bound_to(payload))):
            raise _refused("it does not match the call")
        left = found.expires_ms / 1000 - self._now()
        if not 0 < left <= 2 * GRANT_SECONDS:
            raise _refused("it has expired, or the clocks of the servers differ")
        if not self._is_first_use(found.nonce):
            raise _refused("it was used before")
        scope = Scope(project=found.project, environment=found.environment, environment_id=found.environment_id)
        grant = Grant(scope=scope, rights=frozenset(found.rights), token=found.token, name=found.name)
        return grant, found.body

    async def _secret(self, key: str) -> bytes | None:
        if key not in self._keys:
            try:
                await self.read_keys(older_than=LOOK_AGAIN_SECONDS)
            except LakelogError:
                return None
        return self._keys.get(key)

    def _is_first_use(self, nonce: str) -> bool:
        now = self._now()
        if now - self._turned_at > 2 * GRANT_SECONDS:
            self._used, self._turned_at = (set(), self._used[0]), now
        newer, older = self._used
        if nonce in newer or nonce in older:
            return False
        newer.add(nonce)
        return True


def key_id(secret: bytes) -> str:
    """Return the id of a key. It tells nothing about the key."""
    return blake2b(secret, digest_size=8, person=b"lakelog key id").hexdigest()


def _mac(secret: bytes, data: bytes) -> bytes:
    return hmac.digest(secret, data, "sha256").hex().encode()


def _refused(reason: str) -> NotAuthenticated:
    return NotAuthenticated(f"The grant of another server is not valid: {reason}.")
