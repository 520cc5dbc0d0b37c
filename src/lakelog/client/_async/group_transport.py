"""The interface for group operations that both transports implement. It is part of `AsyncTransport`."""

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
    """The group operations of a transport.

    `seconds` is the time limit of a call, including the time that the server waits.
    """

    async def consume(self, wish: ConsumeWish, seconds: float) -> Consumed: ...

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        """Send answers. Return one result for each, in order."""
        ...

    async def join(self, wish: JoinWish, seconds: float) -> Membership: ...

    async def list_dead(self, group: str, wish: DeadWish, seconds: float) -> DeadPage: ...

    async def find_dead(self, group: str, message_id: str, seconds: float) -> DeadLetter: ...

    async def redrive(self, group: str, wish: RedriveWish, seconds: float) -> Redriven: ...

    async def discard(self, group: str, wish: DeadWish, seconds: float) -> int: ...
