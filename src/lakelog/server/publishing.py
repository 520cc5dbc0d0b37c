"""The publish route in three forms (JSON, an Arrow stream, and frames), and the route that stages frames of a write.

The engine decides what happens to the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from lakelog.batches import validate
from lakelog.engine import Engine, Frame, FrameReceipt, Numbered
from lakelog.engine.log.threads import INLINE_BYTES
from lakelog.errors import InvalidBatch, InvalidRequest, LakelogError, TooLarge
from lakelog.model.position import Receipt, ScheduledReceipt
from lakelog.model.write import StageOptions, StagePiece
from lakelog.server.calls import JSON_TYPE, Call, HttpError, Response
from lakelog.server.messages import MAX_EPOCH, decode_publish
from lakelog.server.metrics import Metrics
from lakelog.server.problems import raise_if_alike
from lakelog.server.query import integer, known_query
from lakelog.storage.store import Payload
from lakelog.wire.frames import ARROW_MEDIA_TYPE, MEDIA_TYPE, NO_PRODUCER, PublishFrame, read_publish
from lakelog.wire.problems import problem_of
from lakelog.wire.shapes import FrameResult, FramesAnswer, PublishAnswer, PublishResult

MAX_FRAMES = 10_000
_STAGE_QUERY = frozenset({"write_id", "attempt", "incarnation", "epoch"})
_encode = msgspec.json.Encoder().encode


class Publishing:
    """Handles calls that publish messages or stage them."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._publisher = engine.publisher
        self._metrics = metrics
        self._forms: dict[bytes, Callable[[Call], Awaitable[Response]]] = {
            b"application/json": self._json,
            ARROW_MEDIA_TYPE.encode(): self._arrow,
            MEDIA_TYPE.encode(): self._frames,
        }

    def publish(self, call: Call) -> Awaitable[Response]:
        kind = call.headers.get(b"content-type", b"")
        form = self._forms.get(kind) or self._forms.get(kind.partition(b";")[0].strip().lower())
        if form is None:
            accepted = ", ".join(name.decode() for name in self._forms)
            raise HttpError(415, f"Send messages as one of {accepted}, and say which in Content-Type.")
        return form(call)

    async def _json(self, call: Call) -> Response:
        body = await call.body()
        if len(body) <= INLINE_BYTES:
            messages, numbered, epoch = decode_publish(body)
        else:
            messages, numbered, epoch = await self._engine.threads.run(len(body), decode_publish, body)
        results = await self._publisher.messages(
            call.scope, call.parameters["topic"], messages, numbered=numbered, epoch=epoch
        )
        self._metrics.publish_bytes += len(body)
        return self.answer(results)

    async def _arrow(self, call: Call) -> Response:
        body = await call.body()
        results = await self._engine.columns.stream(call.scope, call.parameters["topic"], body)
        self._metrics.publish_bytes += len(body)
        return self.answer(results)

    async def _frames(self, call: Call) -> Response:
        body = await call.body()
        frames = await self._engine.threads.run(len(body), _frames_of, body)
        receipts = await self._engine.publisher.frames(call.scope, call.parameters["topic"], frames)
        self._metrics.publish_bytes += len(body)
        refused = _count(
            self._metrics, [(receipt, frame.payload.count) for receipt, frame in zip(receipts, frames, strict=True)]
        )
        raise_if_alike(receipts)
        results = [_frame_result(frame, receipt) for frame, receipt in zip(frames, receipts, strict=True)]
        return Response(207 if refused else 200, _encode(FramesAnswer(results=results)), JSON_TYPE)

    def answer(self, receipts: Sequence[Receipt | LakelogError]) -> Response:
        """Return the response to a publish of messages, and count them."""
        if len(receipts) == 1 and type(receipt := receipts[0]) is Receipt and not receipt.duplicate:
            self._metrics.published += 1
            result = PublishResult(id=receipt.id, partition=receipt.partition, offset=receipt.offset)
            return Response(200, _encode(PublishAnswer(results=[result])), JSON_TYPE)
        refused = _count(self._metrics, [(receipt, 1) for receipt in receipts])
        raise_if_alike(receipts)
        results = [_result(receipt) for receipt in receipts]
        return Response(207 if refused else 200, _encode(PublishAnswer(results=results)), JSON_TYPE)

    async def stage(self, call: Call) -> Response:
        """Store the batches of the body."""
        if call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != MEDIA_TYPE.encode():
            raise HttpError(415, f"Send staged batches as {MEDIA_TYPE}, and say so in Content-Type.")
        query = known_query(call, _STAGE_QUERY)
        if missing := sorted(_STAGE_QUERY - set(query)):
            raise InvalidRequest(f"The parameter `{missing[0]}` is missing.")
        options = StageOptions(
            write_id=query["write_id"],
            attempt=query["attempt"],
            incarnation=integer(query, "incarnation", 0, 0, 1 << 62),
            epoch=integer(query, "epoch", 0, 0, MAX_EPOCH),
        )
        body = await call.body()
        pieces = await self._engine.threads.run(len(body), _staged, body)
        await self._engine.writes.stage(call.scope, call.parameters["topic"], options, pieces)
        self._metrics.publish_bytes += len(body)
        return Response(204, b"")


def _validated_frames(body: bytes) -> list[tuple[PublishFrame, bytes]]:
    """Return the frames of a body and their payloads, validated so that they can be stored unchanged."""
    found = read_publish(body)
    if not found:
        raise InvalidBatch("The body is empty; send at least one frame.")
    if len(found) > MAX_FRAMES:
        raise TooLarge(f"{len(found)} frames in one body; send at most {MAX_FRAMES}.", count=len(found))
    return [(frame, _payload(frame)) for frame in found]


def _payload(frame: PublishFrame) -> bytes:
    data = bytes(frame.payload)
    count = validate(data).num_rows
    if count != frame.count:
        raise InvalidBatch(f"A frame says that it has {frame.count} messages, and has {count}.")
    return data


def _frames_of(body: bytes) -> list[Frame]:
    return [_frame(frame, data) for frame, data in _validated_frames(body)]


def _staged(body: bytes) -> list[StagePiece]:
    """Return the batches. A frame's sequence is its number within its attempt and partition; its producer is unused."""
    return [
        StagePiece(partition=frame.partition, number=frame.sequence, count=frame.count, payload=data)
        for frame, data in _validated_frames(body)
    ]


def _frame(frame: PublishFrame, data: bytes) -> Frame:
    if frame.sequence >= 1 << 62 or frame.epoch > MAX_EPOCH:
        raise InvalidBatch(
            "The sequence of a frame must be below 2^62, and its epoch must be that of the topic's description."
        )
    numbered = None
    if frame.producer != NO_PRODUCER:
        numbered = Numbered(producer=frame.producer, sequence=frame.sequence)
    payload = Payload(data=data, count=frame.count)
    return Frame(partition=frame.partition, payload=payload, numbered=numbered, epoch=frame.epoch)


def _count(metrics: Metrics, receipts: Sequence[tuple[Receipt | FrameReceipt | LakelogError, int]]) -> int:
    """Count the outcomes of the messages, and return the number of refused messages."""
    published = duplicates = refused = 0
    for receipt, count in receipts:
        if isinstance(receipt, LakelogError):
            refused += count
        elif receipt.duplicate:
            duplicates += count
        else:
            published += count
    metrics.published += published
    metrics.duplicates += duplicates
    metrics.refused += refused
    return refused


def _result(receipt: Receipt | LakelogError) -> PublishResult:
    if isinstance(receipt, LakelogError):
        return PublishResult(error=problem_of(receipt))
    due_at = receipt.due_at if isinstance(receipt, ScheduledReceipt) else None
    return PublishResult(
        id=receipt.id, partition=receipt.partition, offset=receipt.offset, due_at=due_at, duplicate=receipt.duplicate
    )


def _frame_result(frame: Frame, receipt: FrameReceipt | LakelogError) -> FrameResult:
    count = frame.payload.count
    if isinstance(receipt, LakelogError):
        return FrameResult(partition=frame.partition, count=count, error=problem_of(receipt))
    return FrameResult(partition=receipt.partition, count=count, offset=receipt.offset, duplicate=receipt.duplicate)
