"""The arguments and results of calls about dead letters: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.model.dead_letters import Repair


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadWish:
    """Which dead letters are meant."""

    topic: str | None = None
    partition: int | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    state: str = "dead"
    after: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWish:
    """Which dead letters are published again: those named, or those that `topic` and `where` select."""

    topic: str | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    limit: int = 10_000
    dry_run: bool = False
    force: bool = False
    max_redrives: int = 3
    repaired: Mapping[str, Repair] | None = None
    """Changes by id."""
