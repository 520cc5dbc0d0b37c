"""The routes for answers to leases: ack, nack, extend and discard, one at a time or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from lakelog.engine import Engine
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.group import MAX_OWNER_BYTES
from lakelog.model.lease import Answered, AnswersRequest, LeaseAnswer, Verb
from lakelog.model.times import to_time
from lakelog.server.bodies import check_identity, json_body, json_response
from lakelog.server.calls import Call, Handler, Response
from lakelog.server.group_routing import GroupRouting
from lakelog.server.messages import decode_json
from lakelog.server.metrics import Metrics
from lakelog.server.problems import raise_if_alike
from lakelog.server.shards import partitions_of
from lakelog.server.streams import Streams, Subscriber
from lakelog.wire import consume_shapes as shapes
from lakelog.wire.operations.consuming import ANSWERS

_SINGLE: dict[str, tuple[msgspec.json.Decoder[Any], Verb]] = {
    "ack": (msgspec.json.Decoder(shapes.Ack), Verb.ACK),
    "ack_cumulative": (msgspec.json.Decoder(shapes.AckCumulative), Verb.ACK_THROUGH),
    "nack": (msgspec.json.Decoder(shapes.Nack), Verb.NACK),
    "discard": (msgspec.json.Decoder(shapes.Discard), Verb.DISCARD),
    "extend": (msgspec.json.Decoder(shapes.Extend), Verb.EXTEND),
}
"""The operations with one answer: the decoder of the body, and the verb."""
_ANSWERS = msgspec.json.Decoder(ANSWERS.rest)
_KINDS = {"counted": Verb.NACK, "uncounted": Verb.RELEASE, "fatal": Verb.FAIL}

Shape = shapes.Ack | shapes.AckCumulative
Result = Answered | LakelogError


class Answering:
    """Handles answers to leases."""

    def __init__(self, engine: Engine, metrics: Metrics, streams: Streams, routing: GroupRouting | None = None) -> None:
        self._engine = engine
        self._metrics = metrics
        self._streams = streams
        self._routing = routing

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the name of their operation."""
        return {"answers": self.many, **{name: partial(self.one, *how) for name, how in _SINGLE.items()}}

    async def many(self, call: Call) -> Response:
        """Handle a call with many answers."""
        body = await json_body(call)
        request = ANSWERS.with_path(call.parameters, decode_json(_ANSWERS, body))
        if (forwarded := await self._elsewhere(call, body, request)) is not None:
            return forwarded
        for each in request.answers:
            each.check_offsets()
        caller = Subscriber(call.scope.environment_id, request.topic, request.group, request.owner)
        results = await self._answered(call, caller, request.answers, request.generation)
        raise_if_alike(results)
        return json_response(shapes.AnswersReply(results=[shapes.AnswerResult.of(each) for each in results]))

    async def one(self, decoder: msgspec.json.Decoder[Any], verb: Verb, call: Call) -> Response:
        """Handle a call with one answer."""
        body = await json_body(call)
        shape: Shape = decode_json(decoder, body)
        if (forwarded := await self._elsewhere(call, body, shape)) is not None:
            return forwarded
        said = _said(shape, verb, await self._partition(call, shape))
        caller = Subscriber(call.scope.environment_id, shape.topic, shape.group, shape.owner)
        (result,) = await self._answered(call, caller, [said], shape.generation)
        if isinstance(result, LakelogError):
            raise result
        if result.expires_ms is not None:
            return json_response(shapes.Extended(expires_at=to_time(result.expires_ms)))
        return Response(204, b"")

    async def _answered(
        self, call: Call, caller: Subscriber, said: Sequence[LeaseAnswer], generation: int | None
    ) -> Sequence[Result]:
        check_identity("owner", caller.owner, MAX_OWNER_BYTES)
        results = await self._engine.leases.answer(
            call.scope, caller.topic, caller.group, caller.owner, said, generation=generation
        )
        self.note(caller, said, results)
        return results

    def note(self, caller: Subscriber, said: Sequence[LeaseAnswer], results: Sequence[Result]) -> None:
        """Count answers that the engine has decided, and free capacity of the pushed streams that they belong to."""
        for each, result in zip(said, results, strict=True):
            outcome = result.code if isinstance(result, LakelogError) else "ok"
            self._metrics.answers[each.verb.value, outcome] += 1
        self._streams.answered(caller, said, results)

    async def _elsewhere(self, call: Call, body: bytes, said: Shape | AnswersRequest) -> Response | None:
        """Return the response of the owner's home, if that is another server and it responded."""
        if self._routing is None:
            return None
        partitions = await partitions_of(self._engine, self._routing, call, said.topic)
        home = self._routing.elsewhere(call, said.group, said.topic, owner=said.owner, partitions=partitions)
        if home is None:
            return None
        return await self._routing.forward(call, body, home)

    async def _partition(self, call: Call, shape: Shape) -> int:
        if shape.partition is not None:
            return shape.partition
        topic = await self._engine.topics.find(call.scope, shape.topic)
        if topic.partitions > 1:
            raise InvalidRequest(f"Give `partition`: topic '{topic.name}' has {topic.partitions}.", topic=topic.name)
        return 0


def _said(shape: Shape, verb: Verb, partition: int) -> LeaseAnswer:
    if isinstance(shape, shapes.AckCumulative):
        return LeaseAnswer(verb=verb, partition=partition, token=shape.token, offsets=(shape.offset,))
    if shape.offset is not None and shape.offsets:
        raise InvalidRequest("Give `offset` or `offsets`, not both.")
    offsets = shape.offsets if shape.offset is None else (shape.offset,)
    if not offsets and (verb is not Verb.EXTEND or shape.token is None):
        raise InvalidRequest("Name the messages: `offset`, or `offsets` such as [812, [815, 830]].")
    said = LeaseAnswer(verb=verb, partition=partition, token=shape.token, offsets=offsets)
    if isinstance(shape, shapes.Nack):
        return replace(
            said, verb=_KINDS[shape.kind], delay_ms=shape.delay_ms, reason=shape.reason, traceback=shape.traceback
        )
    if isinstance(shape, shapes.Discard):
        return replace(said, reason=shape.reason)
    if isinstance(shape, shapes.Extend):
        return replace(said, lease_ms=shape.lease_ms, alone=shape.alone)
    return said
