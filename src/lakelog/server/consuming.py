"""The consume route: leases in three forms, with a long poll. The engine decides what is leased.

If the caller disconnects before it gets its leases, they are released without counting a delivery.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import msgspec
from starlette.datastructures import QueryParams

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeAsk, ConsumeResult
from lakelog.errors import InvalidRequest, LakelogError, Overloaded
from lakelog.model.group import MAX_OWNER_BYTES
from lakelog.model.lease import LeaseAnswer, Verb
from lakelog.model.ranges import to_ranges
from lakelog.model.topic import Scope
from lakelog.server.answering import Answering, raise_if_alike
from lakelog.server.bodies import check_identity, json_body
from lakelog.server.calls import Call, Response
from lakelog.server.drain import Drain
from lakelog.server.group_routing import GroupRouting
from lakelog.server.lease_forms import FORMS, message_count, nothing, stored_bytes
from lakelog.server.messages import decode_json
from lakelog.server.metrics import Metrics
from lakelog.server.negotiation import choose
from lakelog.server.streams import Subscriber
from lakelog.server.waiting import unless_ended
from lakelog.server.wishes import wish_of
from lakelog.wire.consume_shapes import Consume

_CONSUME = msgspec.json.Decoder(Consume)
_log = logging.getLogger(__name__)


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
        shape: Consume = decode_json(_CONSUME, body)
        ask = replace(ask_of(shape), repeat=_is_repeat(call))
        if self._routing is not None and (home := self._routing.elsewhere(call, shape.group, shape.topic)):
            call.waited = ask.wait_seconds > 0
            there = self._routing.forward(call, body, home, seconds=ask.wait_seconds)
            forwarded = await unless_ended(call, self._drain, there)
            if forwarded is not None:
                return forwarded
            if self._drain.begun and not ask.answers:
                return _answer(nothing(media_type), media_type)
            # The home server may have leased messages before it became unreachable.
            ask = replace(ask, repeat=True)
        consumed = await self._consumed(call, ask)
        if consumed is None:
            return _answer(nothing(media_type), media_type)
        return await self._told(call, ask, consumed, media_type)

    async def _consumed(self, call: Call, ask: ConsumeAsk) -> ConsumeResult | None:
        """Return the leases; None if the server drains before there are any."""
        if not ask.wait_seconds or self._drain.begun:
            return await self._engine.leases.consume(call.scope, replace(ask, wait_seconds=0.0))

        async def late(consumed: ConsumeResult) -> None:
            # A caller that lost its connection may repeat the call with the same request id, and gets the same leases.
            if ask.request_id is None:
                await give_back(self._engine, call.scope, ask, consumed)

        consumed = await unless_ended(call, self._drain, self._engine.leases.consume(call.scope, ask), late)
        call.waited = consumed is None or consumed.has_waited
        return consumed

    def _note_answers(self, call: Call, ask: ConsumeAsk, consumed: ConsumeResult) -> None:
        if consumed.answered is None:
            return
        caller = Subscriber(call.scope.environment_id, ask.topic, ask.group, ask.owner)
        self._answering.note(caller, ask.answers, consumed.answered)
        if not consumed.leases:
            raise_if_alike(consumed.answered)

    async def _told(self, call: Call, ask: ConsumeAsk, consumed: ConsumeResult, media_type: str) -> Response:
        self._note_answers(call, ask, consumed)
        stored = stored_bytes(consumed)
        try:
            call.hold(stored)
        except Overloaded:
            await give_back(self._engine, call.scope, ask, consumed)
            raise
        body = await self._engine.threads.run(stored, FORMS[media_type], consumed)
        self._metrics.leased += message_count(consumed)
        return _answer(body, media_type)


def ask_of(shape: Consume) -> ConsumeAsk:
    """Return the request for the engine."""
    for name, text in (("owner", shape.owner), ("member_id", shape.member_id), ("request_id", shape.request_id)):
        check_identity(name, text, MAX_OWNER_BYTES)
    for each in shape.answers:
        each.check_offsets()
    return ConsumeAsk(
        topic=shape.topic,
        group=shape.group,
        owner=shape.owner,
        max_messages=shape.max_messages,
        lease_ms=shape.lease_ms,
        # The outcomes of answers must not wait for messages.
        wait_seconds=0.0 if shape.answers else shape.wait_ms / 1000,
        request_id=shape.request_id,
        member_id=shape.member_id,
        generation=shape.generation,
        isolates=shape.isolates,
        answers=shape.answers,
        wish=wish_of(shape),
    )


async def give_back(engine: Engine, scope: Scope, ask: ConsumeAsk, consumed: ConsumeResult) -> None:
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
        await engine.leases.answer(scope, ask.topic, ask.group, ask.owner, said)
    except LakelogError as error:
        _log.debug("Group %s: leases could not be released and will expire: %s", ask.group, error.detail)


def _is_repeat(call: Call) -> bool:
    # Other parameters are ignored: later versions of the client may add some.
    text = QueryParams(call.asgi.get("query_string", b"")).get("repeat", "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"`repeat` must be true or false, not {text[:40]!r}.")
    return text == "true"


def _answer(body: bytes, media_type: str) -> Response:
    return Response(200, body, (b"content-type", media_type.encode()))
