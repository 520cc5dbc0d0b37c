"""The verbs about writes over HTTP. Connections and errors are `http`'s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from lakelog.client._async.connection import Answer
from lakelog.client.replies import read_reply
from lakelog.model.write import DecideWish, StagePiece, StageWish, Written
from lakelog.wire.frames import MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from lakelog.wire.write_shapes import Decide, WrittenShape

_JSON = "application/json"


class AsyncSender(Protocol):
    """What `AsyncHttpTransport` does for this module."""

    async def post(self, target: str, seconds: float, body: bytes, media: str) -> Answer: ...


class AsyncHttpWrites:
    """The `AsyncWriteTransport` over HTTP."""

    def __init__(self, sender: AsyncSender) -> None:
        self._sender = sender

    async def stage(self, topic: str, wish: StageWish, pieces: Sequence[StagePiece], seconds: float) -> None:
        query = {"write_id": wish.write_id, "attempt": wish.attempt, "incarnation": wish.incarnation}
        body = write_publish(
            PublishFrame(
                partition=piece.partition,
                epoch=wish.epoch,
                count=piece.count,
                sequence=piece.number,
                producer=NO_PRODUCER,
                payload=piece.payload,
            )
            for piece in pieces
        )
        target = f"/v1/topics/{topic}/staged?{urlencode({**query, 'epoch': wish.epoch})}"
        await self._sender.post(target, seconds, body, MEDIA_TYPE)

    async def decide(self, topic: str, wish: DecideWish, seconds: float) -> Written:
        body = Decide(
            write_id=wish.write_id,
            attempts=list(wish.attempts),
            count=wish.count,
            incarnation=wish.incarnation,
            epoch=wish.epoch,
        )
        answer = await self._sender.post(f"/v1/topics/{topic}/writes", seconds, msgspec.json.encode(body), _JSON)
        found = read_reply(answer.body, WrittenShape)
        return Written(count=found.count, won=found.won)
