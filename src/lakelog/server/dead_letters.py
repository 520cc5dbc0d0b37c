"""The routes about dead letters: list, show, redrive, discard. The engine decides what they do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lakelog.engine import Engine
from lakelog.errors import InvalidRequest
from lakelog.model import dead_letters as model
from lakelog.model.dead_letters import Repair
from lakelog.model.limits import MAX_PARTITIONS
from lakelog.model.message import Message, parse_message_id
from lakelog.model.names import check_name
from lakelog.server.audit import given
from lakelog.server.bodies import decoded_body, json_response, optional_body
from lakelog.server.calls import Call, Response
from lakelog.server.messages import COLUMNS, message_of, shown_as
from lakelog.server.query import integer, known_query
from lakelog.wire import group_shapes as shapes
from lakelog.wire.shapes import MessageShape

_REDRIVE = msgspec.json.Decoder(shapes.Redrive)
_RETRY = msgspec.json.Decoder(shapes.Retry)
_DISCARD = msgspec.json.Decoder(shapes.DiscardDead)
_NO_MESSAGE = Message(value=None)


class DeadLetterRoutes:
    """Handles calls about dead letters."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(self, call: Call) -> Response:
        query = known_query(call, {"topic", "partition", "where", "state", "after", "limit"})
        request = model.DeadLetterQuery(
            group=call.parameters["group"],
            topic=check_name("topic", query["topic"]) if "topic" in query else None,
            partition=integer(query, "partition", 0, 0, MAX_PARTITIONS - 1) if "partition" in query else None,
            where=query.get("where"),
            state=query.get("state", "dead"),
            after=query.get("after"),
            limit=integer(query, "limit", 100, 1, 1000),
        )
        page = await self._engine.dead_letters.list(call.scope, request)
        letters = [_shape(letter) for letter in page.letters]
        return json_response(shapes.DeadLetterList(dead_letters=letters, next=page.next))

    async def describe(self, call: Call) -> Response:
        known_query(call, frozenset())
        request = model.DeadLetterRequest(group=call.parameters["group"], message_id=_identity(call))
        return json_response(_shape(await self._engine.dead_letters.find(call.scope, request)))

    async def redrive(self, call: Call) -> Response:
        shape: shapes.Redrive = await decoded_body(call, _REDRIVE)
        request = model.RedriveRequest(
            group=call.parameters["group"],
            message_ids=None if shape.message_ids is None else tuple(shape.message_ids),
            topic=shape.topic,
            where=shape.where,
            limit=shape.limit,
            dry_run=shape.dry_run,
            force=shape.force,
            max_redrives=shape.max_redrives,
            repaired=_repaired(shape.values or {}),
        )
        redriven = await self._engine.dead_letters.redrive(call.scope, request)
        call.note(messages=str(redriven.redriven), **given(shape, "message_ids", "values"))
        return json_response(redriven)

    async def retry(self, call: Call) -> Response:
        shape: shapes.Retry = await optional_body(call, _RETRY)
        identity = _identity(call)
        repaired = _repaired({} if shape.repaired is None else {identity: shape.repaired})
        request = model.RetryRequest(
            group=call.parameters["group"], message_id=identity, force=shape.force, repaired=repaired.get(identity)
        )
        return json_response(await self._engine.dead_letters.retry(call.scope, request))

    async def discard(self, call: Call) -> Response:
        shape: shapes.DiscardDead = await decoded_body(call, _DISCARD)
        request = model.DiscardRequest(
            group=call.parameters["group"],
            message_ids=None if shape.message_ids is None else tuple(shape.message_ids),
            topic=shape.topic,
            where=shape.where,
            limit=shape.limit,
        )
        found = await self._engine.dead_letters.discard(call.scope, request)
        call.note(messages=str(found.discarded), **given(shape, "message_ids"))
        return json_response(found)

    async def delete(self, call: Call) -> Response:
        request = model.DiscardRequest(group=call.parameters["group"], message_ids=(_identity(call),))
        await self._engine.dead_letters.discard(call.scope, request)
        return Response(204, b"")


def _identity(call: Call) -> str:
    identity = call.parameters["message_id"]
    parse_message_id(identity)
    return identity


def _repaired(values: Mapping[str, shapes.Repaired]) -> dict[str, Repair]:
    """Return the changes by id. A value and its content type are read like those of a publish."""
    found = {}
    for identity, repaired in values.items():
        message = _NO_MESSAGE
        if repaired.value is not msgspec.UNSET or repaired.value_base64 is not msgspec.UNSET:
            message = message_of(
                MessageShape(
                    value=repaired.value, value_base64=repaired.value_base64, content_type=repaired.content_type
                )
            )
        if message.value is None and repaired.headers is None:
            raise InvalidRequest(
                "A repaired message needs a value or headers. Discard the dead letter if you do not want it."
            )
        found[identity] = Repair(value=message.value, content_type=message.content_type, headers=repaired.headers)
    return found


def _shape(letter: model.DeadLetter) -> shapes.DeadLetterShape:
    message = Message(
        value=letter.raw,
        key=letter.key,
        headers=letter.headers or None,
        content_type=letter.content_type,
        correlation_id=letter.correlation_id,
        created_at=letter.created_at,
        expires_at=letter.expires_at,
        idempotency_key=letter.idempotency_key,
    )
    return shown_as(
        shapes.DeadLetterShape,
        tuple(getattr(message, name) for name in COLUMNS),
        letter.id,
        letter.offset,
        topic=letter.topic,
        partition=letter.partition,
        epoch=letter.epoch,
        state=letter.state.value,
        error=letter.error,
        deliveries=letter.deliveries,
        failures=letter.failures,
        dead_at=letter.at,
        owner=letter.owner,
        lineage=letter.lineage,
        redriven_to=letter.redriven_to,
        traceback=letter.traceback,
        without_message=letter.without_message,
    )
