"""Child tokens: make, list and revoke. Tokens without a parent are made in the database, by `lakelog tokens`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec.structs import asdict

from lakelog.engine.callers import Caller
from lakelog.errors import Conflict, NotAllowed, NotAuthenticated, NotFound
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.token import (
    MAX_CHILDREN,
    CreateTokenRequest,
    IssuedToken,
    Right,
    Token,
    TokenList,
    TokenQuery,
    TokenRequest,
    hash_secret,
    new_secret,
    new_token,
)
from lakelog.storage.audit import note_change
from lakelog.storage.store import Catalog


def _utcnow() -> datetime:
    return datetime.now(UTC)


class Tokens:
    """The tokens of the caller's environment. A caller without a token, such as an embedded client, may do all."""

    def __init__(self, catalog: Catalog, now: Callable[[], datetime] = _utcnow) -> None:
        self._catalog = catalog
        self._now = now

    async def create(self, caller: Caller, asked: CreateTokenRequest) -> IssuedToken:
        """Make a child of the caller's token, and return it with its secret."""
        check_level(self._catalog.level, FeatureLevel.FOURTH, "Child tokens")
        tokens, parent = await self._tokens(caller)
        now = self._now()
        ends = now + timedelta(milliseconds=asked.expires_in_ms)
        rights = asked.rights or tuple(Right)
        if parent is not None:
            rights = asked.rights or parent.rights
            _check_parent(parent, rights, sum(each.parent == parent.id for each in tokens))
            ends = min(ends, parent.expires_at or ends)
        token = new_token(asked.name, rights, now, ends, parent.id if parent is not None else None)
        secret = new_secret()
        note_change(None, {"id": token.id, "rights": [*token.rights], "parent": token.parent})
        await self._catalog.token_create(caller.scope, token, hash_secret(secret))
        return IssuedToken(**asdict(token), secret=secret)

    async def list(self, caller: Caller, asked: TokenQuery) -> TokenList:
        """Return the tokens that the caller may see."""
        tokens, current = await self._tokens(caller)
        return TokenList(tokens=[each for each in tokens if _sees(current, each)], current=current)

    async def revoke(self, caller: Caller, asked: TokenRequest) -> None:
        """Revoke a child token: one of the caller's, the caller's own, or with the right to manage any."""
        tokens, current = await self._tokens(caller)
        found = next((each for each in tokens if each.id == asked.token_id), None)
        if found is None or not (found == current or _sees(current, found)):
            raise NotFound(f"Token '{asked.token_id}' does not exist, or is not a child of the token of this call.")
        if found.parent is None and current is not None:
            raise NotAllowed(
                f"Token '{found.id}' was made in the database, and can be revoked only there: "
                f"run `lakelog tokens revoke {found.id}` with the database URL."
            )
        note_change({"name": found.name, "rights": [*found.rights], "parent": found.parent}, None)
        await self._catalog.token_revoke(caller.scope, found.id)

    async def _tokens(self, caller: Caller) -> tuple[builtins.list[Token], Token | None]:
        """Return the valid tokens of the environment, and the one of the caller."""
        tokens = await self._catalog.token_list(caller.scope)
        if not caller.token:
            return tokens, None
        current = next((each for each in tokens if each.id == caller.token), None)
        if current is None:
            raise NotAuthenticated("The token was revoked. Create a new one with `lakelog tokens create`.")
        return tokens, current


def _check_parent(parent: Token, rights: tuple[Right, ...], children: int) -> None:
    if parent.parent is not None:
        # A stolen child could otherwise renew itself for as long as its first parent is valid.
        raise NotAllowed("A child token cannot create tokens. Use the token that it was made with.")
    missing = [right for right in rights if right not in parent.rights]
    if missing:
        raise NotAllowed(f"A child token has the rights of its parent or fewer, and the parent lacks {missing[0]}.")
    if children >= MAX_CHILDREN:
        raise Conflict(f"The token has {children} child tokens. Revoke some, or wait until they expire.")


def _sees(current: Token | None, token: Token) -> bool:
    return current is None or Right.MANAGE in current.rights or token.parent == current.id
