"""The consume route: leases in three forms, with a long poll. What is leased to whom is for the engine to say.

A lease that the caller can no longer be told of is given back, uncounted, so that nobody waits for it to end.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import structlog

from lakelog.engine import Engine
from lakelog.engine.consuming import Answer as Said
from lakelog.engine.consuming import ConsumeAsk, Consumed, Verb
from lakelog.errors import LakelogError, Overloaded
from lakelog.model.group import MAX_OWNER_BYTES
from lakelog.model.topic import Scope
from lakelog.server.bodies import check_identity, json_body
from lakelog.server.calls import Answer, Call
from lakelog.server.drain import Drain
from lakelog.server.homes import Homes
from lakelog.server.lease_forms import FORMS, message_count, nothing, stored_bytes
from lakelog.server.messages import decode_json
from lakelog.server.metrics import Metrics
from lakelog.server.negotiation import choose
from lakelog.server.waiting import unless_ended
from lakelog.server.wishes import wish_of
from lakelog.wire.consume_shapes import Consume
from lakelog.wire.leases import to_ranges

_CONSUME = msgspec.json.Decoder(Consume)
_log = structlog.get_logger(__name__)


class Consuming:
    """Handles consume calls."""

    def __init__(self, engine: Engine, drain: Drain, metrics: Metrics, homes: Homes | None = None) -> None:
        self._engine = engine
        self._drain = drain
        self._metrics = metrics
        self._homes = homes

    async def consume(self, call: Call) -> Answer:
        media_type = choose(call.headers.get(b"accept"), FORMS)
        body = await json_body(call)
        shape: Consume = decode_json(_CONSUME, body)
        ask = ask_of(shape)
        if self._homes is not None and (home := self._homes.elsewhere(call, shape.group, shape.topic)):
            call.waited = shape.wait_ms > 0
            there = self._homes.forward(call, body, home, seconds=ask.wait_seconds)
            forwarded = await unless_ended(call, self._drain, there)
            if forwarded is not None:
                return forwarded
            if self._drain.begun:
                return _answer(nothing(media_type), media_type)
        consumed = await self._consumed(call, ask)
        if consumed is None:
            return _answer(nothing(media_type), media_type)
        return await self._told(call, ask, consumed, media_type)

    async def _consumed(self, call: Call, ask: ConsumeAsk) -> Consumed | None:
        """None when the server drains before there was anything."""
        if not ask.wait_seconds or self._drain.begun:
            return await self._engine.leases.consume(call.scope, replace(ask, wait_seconds=0.0))

        async def late(consumed: Consumed) -> None:
            # A caller that lost its connection may come again with the same request id, and gets the same leases.
            if ask.request_id is None:
                await give_back(self._engine, call.scope, ask, consumed)

        consumed = await unless_ended(call, self._drain, self._engine.leases.consume(call.scope, ask), late)
        call.waited = consumed is None or consumed.has_waited
        return consumed

    async def _told(self, call: Call, ask: ConsumeAsk, consumed: Consumed, media_type: str) -> Answer:
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
    """What the engine is asked for."""
    for name, text in (("owner", shape.owner), ("member_id", shape.member_id), ("request_id", shape.request_id)):
        check_identity(name, text, MAX_OWNER_BYTES)
    return ConsumeAsk(
        topic=shape.topic,
        group=shape.group,
        owner=shape.owner,
        max_messages=shape.max_messages,
        lease_ms=shape.lease_ms,
        wait_seconds=shape.wait_ms / 1000,
        request_id=shape.request_id,
        member_id=shape.member_id,
        generation=shape.generation,
        isolates=shape.isolates,
        wish=wish_of(shape),
    )


async def give_back(engine: Engine, scope: Scope, ask: ConsumeAsk, consumed: Consumed) -> None:
    """Releases leases that nobody was told of."""
    said = [
        Said(
            verb=Verb.RELEASE,
            partition=leased.partition,
            token=leased.token,
            ranges=[(first, last + 1) for first, last in to_ranges(sorted(leased.offsets))],
        )
        for leased in consumed.leases
    ]
    if not said:
        return
    try:
        await engine.leases.answer(scope, ask.topic, ask.group, ask.owner, said)
    except LakelogError as error:
        _log.info("leases were not given back, and end by themselves", group=ask.group, reason=error.detail)


def _answer(body: bytes, media_type: str) -> Answer:
    return Answer(200, body, (b"content-type", media_type.encode()))
