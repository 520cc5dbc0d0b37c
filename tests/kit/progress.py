"""Tells people how far a scenario is that takes minutes at full size: run it with `-s` to see that."""

from __future__ import annotations

from datetime import UTC, datetime


def tell(what: object) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", flush=True)
