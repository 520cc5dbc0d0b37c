"""The JSON bodies about writes: one decision, and what stands. Staged batches travel as frames."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from lakelog.model.write import MAX_ATTEMPT_BYTES, MAX_ATTEMPTS, MAX_WRITE_ID_BYTES
from lakelog.wire.shapes import BodyShape, Natural, ReplyShape

WriteId = Annotated[str, Meta(min_length=1, max_length=MAX_WRITE_ID_BYTES)]
Attempt = Annotated[str, Meta(min_length=1, max_length=MAX_ATTEMPT_BYTES)]


class Decide(BodyShape, frozen=True, kw_only=True):
    """POST /v1/topics/{topic}/writes"""

    write_id: WriteId
    attempts: Annotated[list[Attempt], Meta(max_length=MAX_ATTEMPTS)]
    count: Natural
    incarnation: Natural
    epoch: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class WrittenShape(ReplyShape, frozen=True, kw_only=True):
    count: int
    won: bool
