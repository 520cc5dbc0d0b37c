"""Authentication and authorization: tokens, their grants, and the one function that denies calls.

The scope of a call comes only from its token. The table of operations says which right a call needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address

from lakelog.errors import ConfigurationError, NotAllowed, NotAuthenticated
from lakelog.model.token import Right, hash_secret
from lakelog.model.topic import Scope
from lakelog.storage.store import Catalog
from lakelog.wire.operations.operation import PUBLIC, Rights

POSITIVE_SECONDS = 10.0
"""How long a revoked token may still work."""
NEGATIVE_SECONDS = 1.0
CACHE_SIZE = 4096
_MAX_SECRET_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rights of a caller and their scope."""

    scope: Scope
    rights: frozenset[Right]
    token: str
    """The token's id, for the audit log."""
    name: str = ""
    """The token's name; empty if the server does not ask for tokens."""
    over_at: float = float("inf")
    """Seconds since 1970."""


def authorise(rights: Rights | None, grant: Grant | None) -> None:
    """Raise an error unless the caller has one of the rights.

    Only this function denies calls; no rights deny every call.
    """
    if rights is PUBLIC:
        return
    if grant is None:
        raise NotAuthenticated()
    if rights is None or grant.rights.isdisjoint(rights):
        raise NotAllowed(f"This call needs the right {needed_by(rights)}, and the token does not have it.")


def needed_by(rights: Rights | None) -> str:
    """Return the rights of which a caller needs one."""
    return " or ".join(sorted(rights)) if isinstance(rights, frozenset) and rights else "that no token has"


class Authenticator:
    """Finds the grant of a call, and caches it for a short time."""

    def __init__(
        self, catalog: Catalog, *, everyone: Scope | None = None, now: Callable[[], float] = time.time
    ) -> None:
        """Create an authenticator.

        With `everyone`, all callers have all rights in that scope, whatever token they send.
        """
        self._catalog = catalog
        self._now = now
        self._everyone = Grant(scope=everyone, rights=frozenset(Right), token="none") if everyone else None
        # Separate, so that a flood of wrong tokens cannot evict valid ones.
        self._known: dict[bytes, tuple[float, Grant]] = {}
        self._unknown: dict[bytes, float] = {}

    def known(self, authorization: bytes | None) -> Grant | None:
        """Return the grant of a call if it is valid and cached."""
        if self._everyone is not None or authorization is None:
            return self._everyone
        entry = self._known.get(sha256(authorization).digest())
        if entry is None or entry[0] <= time.monotonic() or entry[1].over_at <= self._now():
            return None
        return entry[1]

    async def grant(self, authorization: bytes | None) -> Grant:
        if self._everyone is not None:
            return self._everyone
        if authorization is None:
            raise NotAuthenticated("Send a token: `Authorization: Bearer …`. Make one with `lakelog tokens create`.")
        # A comparison in constant time is not needed: only hashes are looked up, and the similarity of two hashes
        # reveals nothing about a token.
        hashed = sha256(authorization).digest()
        entry = self._known.get(hashed)
        if entry is None or entry[0] <= time.monotonic():
            entry = await self._find(hashed, authorization)
        if entry[1].over_at <= self._now():
            raise NotAuthenticated("The token has expired. Create a new one with `lakelog tokens create`.")
        return entry[1]

    async def _find(self, hashed: bytes, authorization: bytes) -> tuple[float, Grant]:
        """Cache the grant under the hash of the whole header, so that a cached header need not be parsed."""
        self._known.pop(hashed, None)
        if self._unknown.get(hashed, 0.0) > time.monotonic():
            raise _wrong()
        found = await self._catalog.token_find(hash_secret(_secret(authorization)))
        if found is None:
            if len(self._unknown) >= CACHE_SIZE:
                self._unknown.clear()
            self._unknown[hashed] = time.monotonic() + NEGATIVE_SECONDS
            raise _wrong()
        scope, token = found
        over_at = token.expires_at.timestamp() if token.expires_at else float("inf")
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        entry = (
            time.monotonic() + POSITIVE_SECONDS,
            Grant(scope=scope, rights=token.rights, token=token.id, name=token.name, over_at=over_at),
        )
        self._known[hashed] = entry
        return entry


def check_exposure(host: str, authenticate: bool) -> None:
    """Refuse to start without authentication unless the server is bound to loopback."""
    if authenticate or host == "localhost":
        return
    try:
        if ip_address(host.strip("[]")).is_loopback:
            return
    except ValueError:
        pass
    raise ConfigurationError(
        f"Without authentication the server listens on loopback only, not on '{host}'. Use --host 127.0.0.1, or turn "
        "authentication on and make a token with `lakelog tokens create`."
    )


def _secret(authorization: bytes) -> str:
    scheme, _, secret = authorization.partition(b" ")
    secret = secret.strip()
    if scheme.lower() != b"bearer" or not secret.isascii() or not 0 < len(secret) <= _MAX_SECRET_BYTES:
        raise NotAuthenticated("The Authorization header is not `Bearer` and a token.")
    return secret.decode("ascii")


def _wrong() -> NotAuthenticated:
    return NotAuthenticated("The token is unknown or revoked. Create one with `lakelog tokens create`.")
