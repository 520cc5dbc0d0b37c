"""The fetch route in three forms: JSON, an Arrow stream, and stored batches as frames; with a long poll.

Frames are sent whole and undecoded. The other two forms contain exactly the requested messages, limited by their
expanded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
import pyarrow as pa
from starlette.datastructures import QueryParams

from lakelog.batches import FETCH, decode, decoded_bytes, rows, with_positions
from lakelog.engine import Engine
from lakelog.errors import InvalidRequest
from lakelog.model import limits
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest, Position
from lakelog.model.times import parse_time
from lakelog.server.calls import Call, Header, Response
from lakelog.server.drain import Drain
from lakelog.server.expansion import answer_room, fitting_rows
from lakelog.server.large_values import LargeValues
from lakelog.server.messages import COLUMNS, fetched_shapes
from lakelog.server.metrics import Metrics
from lakelog.server.negotiation import choose
from lakelog.server.query import integer, known_query
from lakelog.server.waiting import unless_ended
from lakelog.wire import shapes
from lakelog.wire.frames import ARROW_MEDIA_TYPE, MEDIA_TYPE, write_fetch

MAX_OFFSET = 1 << 62

_QUERY = frozenset({"offset", "time", "last", "limit", "max_bytes", "wait_ms"})
_encode = msgspec.json.Encoder().encode

Built = tuple[bytes, int]
"""The body of a response, and the next offset to read."""
_FetchedBatch = tuple[pa.RecordBatch, int, datetime]
"""Messages, the offset of the first, and the time of the append."""


class Fetching:
    """Handles fetch calls."""

    def __init__(self, engine: Engine, drain: Drain, metrics: Metrics) -> None:
        self._engine = engine
        self._drain = drain
        self._metrics = metrics

    async def fetch(self, call: Call) -> Response:
        media_type = choose(call.headers.get(b"accept"), _FORMS)
        query = known_query(call, _QUERY)
        position, wanted = _position(query), _wanted(query)
        fetched = await self._found(call, _partition(call.parameters["partition"]), position, wanted)
        room = answer_room(self._engine.budget)
        size = _memory(fetched, room, is_stored=media_type == MEDIA_TYPE)
        call.hold(size)
        body, until = await self._engine.threads.run(size, _FORMS[media_type], fetched, room)
        call.hold(len(body))
        self._metrics.fetched += until - fetched.start
        self._metrics.fetch_bytes += len(body)
        return Response(200, body, (b"content-type", media_type.encode()), *_places(fetched, until))

    async def _found(self, call: Call, partition: int, position: Position, wanted: FetchLimits) -> FetchedBatches:
        topic = call.parameters["topic"]
        now = FetchLimits(max_messages=wanted.max_messages, max_bytes=wanted.max_bytes)
        fetched = await self._engine.fetcher.fetch(call.scope, topic, partition, position, now)
        if fetched.batches or not wanted.wait_seconds or self._drain.begun:
            return fetched
        call.waited = True
        # The position is resolved now, because `latest` must not move while the call waits.
        later = self._engine.fetcher.fetch(call.scope, topic, partition, AtOffset(fetched.start), wanted)
        return await unless_ended(call, self._drain, later) or fetched


def _position(query: QueryParams) -> Position:
    if sum(name in query for name in ("offset", "time", "last")) > 1:
        raise InvalidRequest("Give one of `offset`, `time` and `last`.")
    if "time" in query:
        return AtTime(parse_time("time", query["time"]))
    if "last" in query:
        return Latest(integer(query, "last", 0, 0, MAX_OFFSET))
    match query.get("offset", "earliest"):
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case _:
            return AtOffset(integer(query, "offset", 0, 0, MAX_OFFSET))


def _wanted(query: QueryParams) -> FetchLimits:
    return FetchLimits(
        max_messages=integer(query, "limit", 1000, 1, limits.MAX_BATCH_MESSAGES),
        max_bytes=integer(query, "max_bytes", limits.MAX_FETCH_BYTES, 1, limits.MAX_FETCH_BYTES),
        wait_seconds=integer(query, "wait_ms", 0, 0, limits.MAX_WAIT_MS) / 1000,
    )


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidRequest(f"{text[:40]!r} is not the number of a partition.")
    return int(text)


def _places(fetched: FetchedBatches, until: int) -> tuple[Header, ...]:
    return (
        (b"lakelog-start", b"%d" % fetched.start),
        (b"lakelog-next-offset", b"%d" % until),
        (b"lakelog-log-start", b"%d" % fetched.log_start),
        (b"lakelog-high-watermark", b"%d" % fetched.high_watermark),
        (b"lakelog-incarnation", b"%d" % fetched.incarnation),
    )


def _memory(fetched: FetchedBatches, room: int, *, is_stored: bool) -> int:
    """Return the memory that a response needs before it is encoded: stored batches, and what they expand to."""
    stored = sum(len(batch.payload) for batch in fetched.batches)
    if is_stored:
        return stored
    return max(stored, min(stored + room, sum(decoded_bytes(batch.payload) for batch in fetched.batches)))


def _pieces(fetched: FetchedBatches, room: int) -> Iterator[_FetchedBatch]:
    """Return the requested messages that fit into one response; at least one."""
    is_first = True
    for batch in fetched.batches:
        first, end = max(batch.base, fetched.start), min(batch.end, fetched.until)
        piece = decode(batch.payload).slice(first - batch.base, end - first)
        if piece.nbytes > room:
            count = fitting_rows(piece, room)
            if is_first or piece.slice(0, count).nbytes <= room:
                yield piece.slice(0, count), first, batch.appended_at
            return
        room -= piece.nbytes
        is_first = False
        yield piece, first, batch.appended_at


def _as_json(fetched: FetchedBatches, room: int) -> Built:
    messages: list[shapes.FetchedShape] = []
    large = LargeValues()
    until = fetched.start
    for piece, first, appended_at in _pieces(fetched, room):
        found = rows(piece, COLUMNS)
        messages.extend(fetched_shapes(found, fetched.incarnation, fetched.partition, first, appended_at, large))
        until = first + piece.num_rows
    answer = shapes.FetchReply(
        messages=messages, next_offset=until, log_start=fetched.log_start, high_watermark=fetched.high_watermark
    )
    return large.join(_encode(answer)), until


def _as_arrow(fetched: FetchedBatches, room: int) -> Built:
    sink = pa.BufferOutputStream()
    until = fetched.start
    with pa.ipc.new_stream(sink, FETCH) as writer:
        for piece, first, appended_at in _pieces(fetched, room):
            writer.write_batch(with_positions(piece, fetched.partition, first, appended_at))
            until = first + piece.num_rows
    return sink.getvalue().to_pybytes(), until


def _as_frames(fetched: FetchedBatches, room: int) -> Built:
    return write_fetch(fetched.partition, fetched.batches), fetched.until


_FORMS: dict[str, Callable[[FetchedBatches, int], Built]] = {
    "application/json": _as_json,
    MEDIA_TYPE: _as_frames,
    ARROW_MEDIA_TYPE: _as_arrow,
}
