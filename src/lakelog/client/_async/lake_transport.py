"""The seam between the client's verbs about plans and segments and what carries them; part of a transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lakelog.client.lake_values import Plan, PlanWish, Registered, Segment, TierRange, TierWish, Watermarks


class AsyncLakeTransport(Protocol):
    """`seconds` is how long a call may take, the time that it asked the server to wait included."""

    async def plan(self, topic: str, wish: PlanWish, seconds: float) -> Plan: ...

    async def watermarks(
        self, topic: str, beyond: Mapping[int, int], wait_seconds: float, seconds: float
    ) -> Watermarks: ...

    async def tierable(self, topic: str, wish: TierWish, seconds: float) -> Sequence[TierRange]: ...

    async def register(self, topic: str, segments: Sequence[Segment], seconds: float) -> Sequence[Registered]: ...

    async def verified(self, topic: str, segments: Sequence[Segment], seconds: float) -> Sequence[bool]: ...

    async def unregister(self, topic: str, segments: Sequence[Segment], seconds: float) -> Sequence[bool]: ...

    async def unverified(self, topic: str, seconds: float) -> Sequence[Segment]: ...

    async def look(self, paths: Sequence[str], min_age_seconds: float, seconds: float) -> Sequence[str]: ...

    async def swept(self, paths: Sequence[str], seconds: float) -> None: ...
