"""The verbs about writes over HTTP. Connections and errors are `http`'s."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from lakelog.client._async.group_http import AsyncCaller
from lakelog.client.replies import read_reply, same_fields
from lakelog.model.write import DecideWish, StagePiece, StageWish, Written
from lakelog.wire.frames import MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from lakelog.wire.write_shapes import Decide, WrittenShape

_JSON = "application/json"


class AsyncHttpWrites:
    """The `AsyncWriteTransport` over HTTP."""

    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller

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
        await self._caller.send("POST", target, seconds, body, _JSON, MEDIA_TYPE)

    async def decide(self, topic: str, wish: DecideWish, seconds: float) -> Written:
        body = msgspec.json.encode(same_fields(wish, Decide))
        answer = await self._caller.send("POST", f"/v1/topics/{topic}/writes", seconds, body, _JSON)
        return same_fields(read_reply(answer.body, WrittenShape), Written)
