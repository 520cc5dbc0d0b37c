"""The pushed stream: leased messages as lines of JSON or as events, as fast as their owner answers.

If the caller disconnects, messages that were leased but not sent are released. Messages that were sent stay leased
until they are answered or their lease ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Callable

import msgspec
from msgspec.structs import replace

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeResult
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.lease import ConsumeRequest
from lakelog.model.message import message_id
from lakelog.model.times import to_time
from lakelog.model.topic import Scope
from lakelog.server.calls import Call, Disconnected, Response, StreamedResponse
from lakelog.server.consuming import give_back, hold_leases
from lakelog.server.drain import Drain
from lakelog.server.lease_forms import leased_rows, message_count
from lakelog.server.messages import shown_as
from lakelog.server.metrics import Metrics
from lakelog.server.negotiation import choose
from lakelog.server.query import known_query
from lakelog.server.streams import Hands, Streams, Subscriber
from lakelog.server.waiting import unless_ended
from lakelog.wire.consume_shapes import PushedShape, PushRequest
from lakelog.wire.problems import problem_of

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
HEARTBEAT_SECONDS = 10.0
LOOK_SECONDS, LOOK_LAST_SECONDS = 1.0, 8.0
"""How long a full stream waits for answers before it checks with the engine; doubled each time."""

_NAMES = frozenset(PushRequest.__struct_fields__) - {"retries"}
_encode = msgspec.json.Encoder().encode

Line = Callable[[bytes, str], bytes]


class Pushing:
    """Handles GET /v1/consume."""

    def __init__(self, engine: Engine, drain: Drain, metrics: Metrics, streams: Streams) -> None:
        self._engine = engine
        self._drain = drain
        self._metrics = metrics
        self._streams = streams

    async def push(self, call: Call) -> Response:
        media_type = choose(call.headers.get(b"accept"), _LINES)
        request = _request(call)
        # Before the response begins, so that a refusal has its own status.
        first = await self._engine.leases.consume(call.scope, request)
        pieces = self._pieces(call, request, first, media_type)
        return StreamedResponse(200, pieces, (b"content-type", media_type.encode()), (b"cache-control", b"no-store"))

    async def _pieces(
        self, call: Call, request: ConsumeRequest, consumed: ConsumeResult, media_type: str
    ) -> AsyncGenerator[bytes, None]:
        line, beat = _LINES[media_type], _BEATS[media_type]
        subscriber = Subscriber(call.scope.environment_id, request.topic, request.group, request.owner)
        with self._streams.follow(subscriber) as hands:
            try:
                while True:
                    if consumed.leases:
                        yield await self._lines(call, request, consumed, hands, line)
                        call.release()
                    else:
                        yield beat
                    found = await self._next(call, request, hands, consumed)
                    if found is None:
                        return
                    consumed = found
            except Disconnected:
                return
            except LakelogError as error:
                yield line(_encode({"error": problem_of(error)}), "")

    async def _lines(
        self, call: Call, request: ConsumeRequest, consumed: ConsumeResult, hands: Hands, line: Line
    ) -> bytes:
        consumed = await hold_leases(self._engine, call, request, consumed)
        try:
            piece = await self._engine.threads.run(call.held, _lines, consumed, line)
            call.hold(len(piece))
        except BaseException:
            await asyncio.shield(give_back(self._engine, call.scope, request, consumed))
            raise
        for leased in consumed.leases:
            hands.given(leased)
        self._metrics.leased += message_count(consumed)
        return piece

    async def _next(
        self, call: Call, request: ConsumeRequest, hands: Hands, last: ConsumeResult
    ) -> ConsumeResult | None:
        """Return the next lease, nothing when a heartbeat is due, or None when the server drains."""

        async def late(consumed: ConsumeResult) -> None:
            await give_back(self._engine, call.scope, request, consumed)

        return await unless_ended(call, self._drain, self._leased(call.scope, request, hands, last), late)

    async def _leased(self, scope: Scope, request: ConsumeRequest, hands: Hands, last: ConsumeResult) -> ConsumeResult:
        beat_at = time.monotonic() + HEARTBEAT_SECONDS
        look = LOOK_SECONDS
        while hands.count >= request.max_messages:
            hands.freed.clear()
            left = beat_at - time.monotonic()
            if left <= 0:
                return dataclasses.replace(last, leases=())
            try:
                async with asyncio.timeout(min(left, look)):
                    await hands.freed.wait()
            except TimeoutError:
                look = min(2 * look, LOOK_LAST_SECONDS)
                hands.settle(await self._engine.groups.lag(scope, request.group, request.topic))
        room = request.max_messages - hands.count
        left = max(0.0, beat_at - time.monotonic())
        return await self._engine.leases.consume(scope, replace(request, max_messages=room, wait_ms=int(left * 1000)))


def _request(call: Call) -> ConsumeRequest:
    query = known_query(call, _NAMES)
    try:
        pushed = msgspec.convert(dict(query), PushRequest, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}.") from error
    fields = {name: getattr(pushed, name) for name in _NAMES if name != "max_in_flight"}
    return ConsumeRequest(max_messages=pushed.max_in_flight, **fields)


def _lines(consumed: ConsumeResult, line: Line) -> bytes:
    topic, group = consumed.topic, consumed.group.name
    return b"".join(
        line(_encode(shape), shape.id)
        for leased in consumed.leases
        for offset, row, appended_at in leased_rows(leased)
        for shape in (
            shown_as(
                PushedShape,
                row,
                message_id(topic.incarnation, leased.partition, offset),
                offset,
                appended_at=appended_at,
                delivery=leased.deliveries.get(offset, 1),
                failures=leased.failures.get(offset, 0),
                topic=topic.name,
                group=group,
                partition=leased.partition,
                token=leased.token,
                lease_expires_at=to_time(leased.expires_ms),
                suspect=leased.suspect,
            ),
        )
    )


def _line(encoded: bytes) -> bytes:
    # Values are passed on as they were published, possibly with line breaks.
    if b"\n" in encoded or b"\r" in encoded:
        return msgspec.json.format(encoded, indent=-1)
    return encoded


def _as_line(encoded: bytes, identity: str) -> bytes:
    return _line(encoded) + b"\n"


def _as_event(encoded: bytes, identity: str) -> bytes:
    head = b"event: message\nid: %s\n" % identity.encode() if identity else b"event: error\n"
    return b"%sdata: %s\n\n" % (head, _line(encoded))


_LINES: dict[str, Line] = {NDJSON: _as_line, EVENTS: _as_event}
_BEATS = {NDJSON: b"\n", EVENTS: b": heartbeat\n\n"}
