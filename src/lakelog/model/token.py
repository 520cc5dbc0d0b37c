"""Tokens and their rights in one environment. Only the hash of a token is stored."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PREFIX = "lkl_"


class Right(StrEnum):
    """A right of a token. No right implies another."""

    READ = "read"
    PUBLISH = "publish"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret."""

    id: str
    name: str
    rights: frozenset[Right]
    created_at: datetime
    expires_at: datetime | None

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def new_secret() -> str:
    """Return a secret with 256 random bits. It is shown once, and its plain hash is safe to store."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
