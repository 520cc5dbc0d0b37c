"""The seam between the client's verbs about groups and what carries them; part of a transport, under the same rules."""

from __future__ import annotations

from typing import Protocol

from lakelog.client.group_values import DeadWish, RedriveWish
from lakelog.model.dead_letters import DeadLetter, DeadLetterPage, Redriven


class AsyncGroupTransport(Protocol):
    """`seconds` is how long a call may take, the time that it asked the server to wait included."""

    async def list_dead(self, group: str, wish: DeadWish, seconds: float) -> DeadLetterPage: ...

    async def find_dead(self, group: str, message_id: str, seconds: float) -> DeadLetter: ...

    async def redrive(self, group: str, wish: RedriveWish, seconds: float) -> Redriven: ...

    async def discard(self, group: str, wish: DeadWish, seconds: float) -> int: ...
