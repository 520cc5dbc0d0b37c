"""Tokens: who may do what in one environment. Only a hash of a token is ever stored."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PREFIX = "lkl_"


class Right(StrEnum):
    """What a token allows. None implies another."""

    READ = "read"
    PUBLISH = "publish"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token, apart from its secret."""

    id: str
    name: str
    rights: frozenset[Right]
    created_at: datetime
    expires_at: datetime | None

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def new_secret() -> str:
    """A secret with 256 random bits: shown once, so a plain hash of it is safe to keep."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
