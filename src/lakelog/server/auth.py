"""Authentication and authorization: tokens, their grants, and the one function that denies calls.

The scope of a call comes only from its token. The table of operations says which right a call needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from lakelog.engine.coalescing import SharedCalls
from lakelog.errors import ConfigurationError, LakelogError, NotAllowed, NotAuthenticated
from lakelog.model.token import Right, Token, hash_secret
from lakelog.model.topic import Scope
from lakelog.storage.store import Catalog
from lakelog.wire.operations.operation import PUBLIC, Rights

POSITIVE_SECONDS = 2.0
"""How long a revoked token may still work, and how long its long polls and streams may continue."""
REFRESH_SECONDS = 0.8
"""How often the tokens in use are read again, all in one query."""
FRESH_SECONDS = 1.0
"""The age of a cached token from which a use of it triggers a new read."""
NEGATIVE_SECONDS = 1.0
CACHE_SIZE = 4096
_MAX_SECRET_BYTES = 512
NO_TOKEN = "none"
"""The id in the grant of a server without authentication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rights of a caller and their scope."""

    scope: Scope
    rights: frozenset[Right]
    token: str
    """The token's id, for the audit log."""
    name: str = ""
    """The token's name; empty if the server does not require tokens."""
    over_at: float = float("inf")
    """When the grant expires, in seconds since 1970."""
    token_hash: bytes = field(default=b"", repr=False)


class _CachedToken(NamedTuple):
    """A grant in the cache."""

    grant: Grant
    refresh_at: float
    """The time on the monotonic clock from which a use of the token triggers a new read."""
    until: float
    """The time on the monotonic clock at which the entry expires."""


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

        With `everyone`, all callers have all rights in that scope, and tokens are ignored.
        """
        self._catalog = catalog
        self._now = now
        self._everyone = Grant(scope=everyone, rights=frozenset(Right), token=NO_TOKEN) if everyone else None
        # Separate, so that a flood of wrong tokens cannot evict valid ones.
        self._known: dict[bytes, _CachedToken] = {}
        self._unknown: dict[bytes, float] = {}
        self._stale: set[bytes] = set()
        """The hashes of the tokens to read again."""
        self._watches: dict[asyncio.Future[None], Grant] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._finding: SharedCalls[_CachedToken] = SharedCalls()

    def known(self, authorization: bytes | None) -> Grant | None:
        """Return the grant of a call if it is valid and cached."""
        if self._everyone is not None or authorization is None:
            return self._everyone
        entry = self._known.get(sha256(authorization).digest())
        if entry is None or entry.until <= time.monotonic() or entry.grant.over_at <= self._now():
            return None
        self._used(entry)
        return entry.grant

    async def grant(self, authorization: bytes | None) -> Grant:
        if self._everyone is not None:
            return self._everyone
        if authorization is None:
            raise NotAuthenticated("Send a token: `Authorization: Bearer …`. Make one with `lakelog tokens create`.")
        # A comparison in constant time is not needed: only hashes are looked up, and the similarity of two hashes
        # reveals nothing about a token.
        hashed = sha256(authorization).digest()
        entry = self._known.get(hashed)
        if entry is None or entry.until <= time.monotonic():
            entry = await self._finding.get(hashed, lambda: self._find(hashed, authorization))
        if entry.grant.over_at <= self._now():
            raise NotAuthenticated("The token has expired. Create a new one with `lakelog tokens create`.")
        self._used(entry)
        return entry.grant

    def accepts_origin(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether callers need a token, or the call comes from this machine and not from a website."""
        return self._everyone is None or not refusal_of_origin(headers)

    def watch(self, grant: Grant) -> asyncio.Future[None]:
        """Return a future that is done when the token is revoked or has expired. Cancel it to end the watch."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if grant.token_hash:
            self._watches[ended] = grant
            ended.add_done_callback(lambda done: self._watches.pop(done, None))
            self._refresh_soon()
        return ended

    def close(self) -> None:
        """Stop reading tokens again."""
        if self._refreshing is not None:
            self._refreshing.cancel()

    # Refreshing -------------------------------------------------------------------------------------------------------

    def _used(self, entry: _CachedToken) -> None:
        """Read a token again before its entry expires, so that no call waits for it."""
        if entry.refresh_at <= time.monotonic():
            self._stale.add(entry.grant.token_hash)
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        """Read the tokens in use again, as long as there are any."""
        while self._stale or self._watches:
            await asyncio.sleep(REFRESH_SECONDS)
            asked = [*self._stale.union(grant.token_hash for grant in self._watches.values())]
            self._stale.clear()
            for ended, grant in list(self._watches.items()):
                if grant.over_at <= self._now() and not ended.done():
                    ended.set_result(None)
            try:
                found = await self._catalog.tokens_find(asked)
            except LakelogError:
                # The catalog cannot be reached: cached entries expire, and calls that wait go on.
                continue
            self._refreshed(asked, found)

    def _refreshed(self, asked: Sequence[bytes], found: Mapping[bytes, tuple[Scope, Token]]) -> None:
        gone = set(asked).difference(found)
        for ended, grant in list(self._watches.items()):
            if grant.token_hash in gone and not ended.done():
                ended.set_result(None)
        wanted = set(asked)
        for hashed, entry in list(self._known.items()):
            token_hash = entry.grant.token_hash
            if token_hash in gone:
                del self._known[hashed]
            elif token_hash in wanted:
                self._known[hashed] = _entry(*found[token_hash], token_hash)

    async def _find(self, hashed: bytes, authorization: bytes) -> _CachedToken:
        """Cache the grant under the hash of the whole header, so that a cached header need not be parsed."""
        self._known.pop(hashed, None)
        if self._unknown.get(hashed, 0.0) > time.monotonic():
            raise _wrong()
        token_hash = hash_secret(_secret(authorization))
        found = await self._catalog.token_find(token_hash)
        if found is None:
            if len(self._unknown) >= CACHE_SIZE:
                self._unknown.clear()
            self._unknown[hashed] = time.monotonic() + NEGATIVE_SECONDS
            raise _wrong()
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        entry = self._known[hashed] = _entry(*found, token_hash)
        return entry


def _entry(scope: Scope, token: Token, token_hash: bytes) -> _CachedToken:
    grant = Grant(
        scope=scope,
        rights=frozenset(token.rights),
        token=token.id,
        name=token.name,
        over_at=token.expires_at.timestamp() if token.expires_at else float("inf"),
        token_hash=token_hash,
    )
    now = time.monotonic()
    return _CachedToken(grant, now + FRESH_SECONDS, now + POSITIVE_SECONDS)


def refusal_of_origin(headers: Mapping[bytes, bytes]) -> str:
    """Return why a server without authentication refuses a call that a website makes through a user's browser.

    The `Host` must be this machine, because a website can point its own name at it. An `Origin` must be on this machine
    too: a browser sends some calls of any website without asking. An empty text means that the call is accepted.
    """
    host, origin = headers.get(b"host"), headers.get(b"origin")
    if host is not None and not _is_loopback(host):
        return "Without authentication the server accepts only calls to localhost; check the Host header."
    if origin is not None and not _is_loopback(origin.partition(b"://")[2]):
        return "Without authentication the server accepts no calls of websites on other machines."
    return ""


@lru_cache(maxsize=64)
def _is_loopback(authority: bytes) -> bool:
    """Return whether a name or an address, perhaps with a port, is that of this machine."""
    try:
        name = urlsplit(f"//{authority.decode('latin-1')}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


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
