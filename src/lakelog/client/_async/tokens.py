"""Child tokens: creates, lists and revokes them."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import timedelta

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.arguments import check_seconds
from lakelog.model.token import MAX_CHILD_MS, CreateTokenRequest, IssuedToken, Right, Token, TokenQuery, TokenRequest
from lakelog.wire.operations import tokens as operations

_LONGEST = timedelta(milliseconds=MAX_CHILD_MS)


class AsyncTokens:
    """Children of the client's own token, as `log.tokens`. Other tokens are made with `lakelog tokens create`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def create(
        self,
        name: str,
        rights: Iterable[Right | str] | None = None,
        *,
        expires_in: timedelta | float = _LONGEST,
    ) -> IssuedToken:
        """Create a child of the client's token, and return it with its secret, which is not shown again.

        Args:
            name: The purpose of the token, for the list of tokens and the audit log.
            rights: Some of "read", "publish", "manage", "inspect" and "metrics". The client's token must have each of
                them. Default: all rights of the client's token.
            expires_in: The life of the token, in seconds or as a timedelta, from one second to 12 hours, which is the
                default. The token never outlives the client's token.

        Raises:
            NotAllowed: The client's token lacks one of the rights, or is a child itself.
        """
        life = int(check_seconds("expires_in", expires_in) * 1000)
        given = None if rights is None else tuple(Right(right) for right in rights)
        request = CreateTokenRequest(name=name, rights=given, expires_in_ms=life)
        return await self._calls.call(operations.CREATE_TOKEN, request)

    async def list(self) -> builtins.list[Token]:
        """Return the children of the client's token; with the right to manage, all tokens of the environment."""
        return list((await self._calls.call(operations.LIST_TOKENS, TokenQuery())).tokens)

    async def current(self) -> Token | None:
        """Return the client's own token, without its secret; None without authentication."""
        return (await self._calls.call(operations.LIST_TOKENS, TokenQuery())).current

    async def revoke(self, token_id: str) -> None:
        """Revoke a child token. Servers refuse it within 2 seconds.

        Args:
            token_id: The id of a child of the client's token, or of the client's own token if that is a child. With
                the right to manage, the id of any child token of the environment.

        Raises:
            NotFound: There is no such token, or it is not a child of the client's token.
        """
        await self._calls.call(operations.REVOKE_TOKEN, TokenRequest(token_id=token_id))
