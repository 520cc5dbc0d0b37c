"""Tokens and their rights in one environment. Only the hash of a token is stored.

A child token is made over HTTP by the holder of another token, such as a person who logs in to a console. It has the
rights of its parent or fewer, ends after hours, and is refused as soon as its parent is revoked.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from lakelog.model.kinds import Right as Right
from lakelog.model.structs import Request, Value

PREFIX = "lkl_"
MAX_CHILD_MS = 12 * 3_600_000
"""The longest life of a child token."""
MAX_CHILDREN = 1000
"""The most child tokens of one token that are valid at the same time."""


class Token(Value, frozen=True, kw_only=True):
    """A token without its secret.

    Attributes:
        id: The id, by which the token is revoked.
        name: The purpose of the token.
        rights: The rights, in a fixed order.
        created_at: When the token was created.
        expires_at: When the token expires; None if it does not.
        parent: The id of the token that made this one; None if it was made in the database.
    """

    id: str
    name: str
    rights: tuple[Right, ...]
    created_at: datetime
    expires_at: datetime | None
    parent: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "rights", tuple(right for right in Right if right in self.rights))

    def is_over(self, now: datetime) -> bool:
        """Return whether the token has expired.

        Args:
            now: The time to compare with.
        """
        return self.expires_at is not None and self.expires_at <= now


class IssuedToken(Token, frozen=True, kw_only=True):
    """A new token with its secret, which is not shown again.

    Attributes:
        secret: The text to send as `Authorization: Bearer …`.
    """

    secret: str

    def __repr__(self) -> str:
        return f"IssuedToken(id={self.id!r}, name={self.name!r}, rights={[str(each) for each in self.rights]})"


class CreateTokenRequest(Request, frozen=True, kw_only=True):
    """A request for a child of the caller's token.

    Attributes:
        name: The purpose of the token.
        rights: The rights, each of which the parent must have. Default: those of the parent.
        expires_in_ms: The life of the token, at most 12 hours. The token never outlives its parent.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\u0000]+$")]
    rights: Annotated[tuple[Right, ...], Meta(min_length=1, max_length=len(Right))] | None = None
    expires_in_ms: Annotated[int, Meta(ge=1000, le=MAX_CHILD_MS)] = MAX_CHILD_MS


class TokenQuery(Request, frozen=True, kw_only=True):
    """A request for tokens."""


class TokenList(Value, frozen=True, kw_only=True):
    """The tokens that the caller may see.

    Attributes:
        tokens: The children of the caller's token; with the right to manage, all tokens of the environment.
        current: The caller's own token; None without authentication.
    """

    tokens: Sequence[Token]
    current: Token | None = None


class TokenRequest(Request, frozen=True, kw_only=True):
    """A token to revoke."""

    token_id: Annotated[str, Meta(min_length=1, max_length=120)]


def new_token(
    name: str, rights: Iterable[Right], now: datetime, expires_at: datetime | None, parent: str | None = None
) -> Token:
    """Return a token with a new id."""
    return Token(
        id=secrets.token_hex(6),
        name=name,
        rights=tuple(rights),
        created_at=now,
        expires_at=expires_at,
        parent=parent,
    )


def new_secret() -> str:
    """Return a secret with 256 random bits. It is shown once, and its plain hash is safe to store."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
