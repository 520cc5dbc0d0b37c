"""The seam between the client's verbs about writes and what carries them; part of a transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakelog.model.write import DecideWish, StagePiece, StageWish, Written


class AsyncWriteTransport(Protocol):
    """`seconds` is how long a call may take. Both verbs may be repeated as they are."""

    async def stage(self, topic: str, wish: StageWish, pieces: Sequence[StagePiece], seconds: float) -> None: ...

    async def decide(self, topic: str, wish: DecideWish, seconds: float) -> Written: ...
