"""The seam between the client's verbs about groups and what carries them; part of a transport, under the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakelog.client.group_values import (
    Consumed,
    ConsumeWish,
    DeadLetter,
    DeadPage,
    DeadWish,
    JoinWish,
    Redriven,
    RedriveWish,
)
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.membership import Membership


class AsyncGroupTransport(Protocol):
    """`seconds` is how long a call may take, the time that it asked the server to wait included."""

    async def consume(self, wish: ConsumeWish, seconds: float) -> Consumed: ...

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        """One result each, in order."""
        ...

    async def join(self, wish: JoinWish, seconds: float) -> Membership: ...

    async def list_dead(self, group: str, wish: DeadWish, seconds: float) -> DeadPage: ...

    async def find_dead(self, group: str, message_id: str, seconds: float) -> DeadLetter: ...

    async def redrive(self, group: str, wish: RedriveWish, seconds: float) -> Redriven: ...

    async def discard(self, group: str, wish: DeadWish, seconds: float) -> int: ...
