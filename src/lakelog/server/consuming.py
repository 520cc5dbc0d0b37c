"""The consume route: leases in three forms, with a long poll. The engine decides what is leased.

If the caller disconnects before it gets its leases, they are released without counting a delivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec
from msgspec.structs import replace
from starlette.datastructures import QueryParams

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeResult
from lakelog.errors import InvalidRequest, LakelogError, OutcomeUnknown, Overloaded
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.ranges import to_ranges
from lakelog.model.topic import Scope
from lakelog.server.answering import Answering
from lakelog.server.bodies import json_body
from lakelog.server.calls import Call, Response
from lakelog.server.drain import Drain
from lakelog.server.expansion import answer_room, decoded_size, divide, largest_size, stored_size, usual_size
from lakelog.server.group_routing import GroupRouting
from lakelog.server.lease_forms import FORMS, message_count, nothing, stored_bytes
from lakelog.server.messages import decode_json
from lakelog.server.metrics import Metrics
from lakelog.server.negotiation import choose
from lakelog.server.problems import raise_if_alike
from lakelog.server.shards import partitions_of
from lakelog.server.streams import Subscriber
from lakelog.server.waiting import unless_ended
from lakelog.wire.leases import MEDIA_TYPE

_CONSUME = msgspec.json.Decoder(ConsumeRequest)
_log = logging.getLogger(__name__)

Consume = Callable[[ConsumeRequest], Coroutine[object, object, ConsumeResult]]


class Consuming:
    """Handles consume calls."""

    def __init__(
        self, engine: Engine, drain: Drain, metrics: Metrics, answering: Answering, routing: GroupRouting | None = None
    ) -> None:
        """Create the routes. `answering` counts the answers that come with a call."""
        self._engine = engine
        self._answering = answering
        self._drain = drain
        self._metrics = metrics
        self._routing = routing

    async def consume(self, call: Call) -> Response:
        media_type = choose(call.headers.get(b"accept"), FORMS)
        body = await json_body(call)
        request: ConsumeRequest = decode_json(_CONSUME, body)
        for each in request.answers:
            each.check_offsets()
        repeat = _is_repeat(call)
        partitions = await partitions_of(self._engine, self._routing, call, request.topic)
        if self._routing is not None and (
            home := self._routing.elsewhere(
                call, request.group, request.topic, owner=request.owner, partitions=partitions
            )
        ):
            seconds = _wait_seconds(request)
            call.waited = seconds > 0
            there = self._routing.forward(call, body, home, seconds=seconds)
            forwarded = await unless_ended(call, self._drain, there)
            if forwarded is not None:
                return forwarded
            if self._drain.begun and not request.answers:
                if request.request_id is not None:
                    # The home may have leased messages, and keeps them for a repeat of the call.
                    raise OutcomeUnknown("The server shuts down. Repeat the call with the same request id.")
                return _answer(nothing(media_type), media_type)
            # The home server may have leased messages before it became unreachable.
            repeat = True
        shard = None
        if self._routing is not None:
            shard = self._routing.shard(call, request.group, request.topic, partitions)
        consume = partial(self._engine.leases.consume, call.scope, repeat=repeat, shard=shard)
        consumed = await self._consumed(call, request, consume)
        if consumed is None:
            return _answer(nothing(media_type), media_type)
        return await self._told(call, request, consumed, media_type)

    async def _consumed(self, call: Call, request: ConsumeRequest, consume: Consume) -> ConsumeResult | None:
        """Return the leases; None if the server drains before there are any."""
        if not _wait_seconds(request):
            return await consume(request)
        if self._drain.begun:
            return await consume(replace(request, wait_ms=0))

        async def late(consumed: ConsumeResult) -> None:
            # A caller that lost its connection may repeat the call with the same request id, and gets the same leases.
            if request.request_id is None:
                await give_back(self._engine, call.scope, request, consumed)

        consumed = await unless_ended(call, self._drain, consume(request), late)
        call.waited = consumed is None or consumed.has_waited
        return consumed

    def _note_answers(self, call: Call, request: ConsumeRequest, consumed: ConsumeResult) -> None:
        if consumed.answered is None:
            return
        caller = Subscriber(call.scope.environment_id, request.topic, request.group, request.owner)
        self._answering.note(caller, request.answers, consumed.answered)
        if not consumed.leases:
            raise_if_alike(consumed.answered)

    async def _told(self, call: Call, request: ConsumeRequest, consumed: ConsumeResult, media_type: str) -> Response:
        self._note_answers(call, request, consumed)
        stored = stored_bytes(consumed)
        consumed = await hold_leases(self._engine, call, request, consumed, is_stored=media_type == MEDIA_TYPE)
        try:
            body = await self._engine.threads.run(max(stored, call.held), FORMS[media_type], consumed)
            call.hold(len(body))
        except Overloaded:
            await give_back(self._engine, call.scope, request, consumed)
            raise
        self._metrics.leased += message_count(consumed)
        return _answer(body, media_type)


async def hold_leases(
    engine: Engine, call: Call, request: ConsumeRequest, consumed: ConsumeResult, *, is_stored: bool = False
) -> ConsumeResult:
    """Take memory for the leased messages. Release those that do not fit into one response.

    `is_stored`: the messages are sent as stored batches, without being decoded.
    """
    room = answer_room(engine.budget)
    largest = stored_bytes(consumed) if is_stored else largest_size(consumed)
    try:
        if largest > room:
            size_of = stored_size if is_stored else decoded_size
            consumed, rest = await engine.threads.run(largest, divide, consumed, room, size_of)
            await give_back(engine, call.scope, request, rest)
        call.hold(stored_bytes(consumed) if is_stored else min(room, usual_size(consumed)))
    except BaseException:
        await asyncio.shield(give_back(engine, call.scope, request, consumed))
        raise
    return consumed


def _wait_seconds(request: ConsumeRequest) -> float:
    """Return how long to wait for messages. The outcomes of answers do not wait for them."""
    return 0.0 if request.answers else request.wait_ms / 1000


async def give_back(engine: Engine, scope: Scope, request: ConsumeRequest, consumed: ConsumeResult) -> None:
    """Release leases that the caller did not receive."""
    said = [
        LeaseAnswer(
            verb=Verb.RELEASE,
            partition=leased.partition,
            token=leased.token,
            offsets=tuple(to_ranges(sorted(leased.offsets))),
        )
        for leased in consumed.leases
    ]
    if not said:
        return
    try:
        await engine.leases.answer(scope, request.topic, request.group, request.owner, said)
    except LakelogError as error:
        _log.debug("Group %s: leases could not be released and will expire: %s", request.group, error.detail)


def _is_repeat(call: Call) -> bool:
    # Other parameters are ignored: later versions of the client may add some.
    text = QueryParams(call.asgi.get("query_string", b"")).get("repeat", "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"`repeat` must be true or false, not {text[:40]!r}.")
    return text == "true"


def _answer(body: bytes, media_type: str) -> Response:
    return Response(200, body, (b"content-type", media_type.encode()))
