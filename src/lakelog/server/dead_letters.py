"""The routes about dead letters: list, show, redrive, discard. The engine decides what they do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lakelog.engine import Engine
from lakelog.engine.groups.dead_letters import MAX_PER_CALL
from lakelog.engine.groups.redrive import DeadLetter, Redriven
from lakelog.errors import InvalidRequest
from lakelog.model.limits import MAX_PARTITIONS
from lakelog.model.message import Message, parse_message_id
from lakelog.model.names import check_name
from lakelog.model.repair import Repair
from lakelog.model.times import to_time
from lakelog.server.audit import given
from lakelog.server.bodies import decoded_body, json_response, optional_body
from lakelog.server.calls import Call, Response
from lakelog.server.messages import COLUMNS, message_of, shown_as
from lakelog.server.query import integer, known_query
from lakelog.wire import group_shapes as shapes
from lakelog.wire.shapes import MessageShape

STATES = ("dead", "redriven", "discarded")

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
        if (state := query.get("state", "dead")) not in STATES:
            raise InvalidRequest(f"`state` is one of {', '.join(STATES)}.")
        page = await self._engine.dead_letters.list(
            call.scope,
            call.parameters["group"],
            topic=check_name("topic", query["topic"]) if "topic" in query else None,
            partition=integer(query, "partition", 0, 0, MAX_PARTITIONS - 1) if "partition" in query else None,
            where=query.get("where"),
            state=state,
            after=query.get("after"),
            limit=integer(query, "limit", 100, 1, 1000),
        )
        letters = [_shape(letter) for letter in page.letters]
        return json_response(shapes.DeadLetterList(dead_letters=letters, next=page.after))

    async def describe(self, call: Call) -> Response:
        known_query(call, frozenset())
        group, identity = call.parameters["group"], _identity(call)
        return json_response(_shape(await self._engine.dead_letters.find(call.scope, group, identity)))

    async def redrive(self, call: Call) -> Response:
        shape: shapes.Redrive = await decoded_body(call, _REDRIVE)
        redriven = await self._engine.dead_letters.redrive(
            call.scope,
            call.parameters["group"],
            message_ids=shape.message_ids,
            topic=shape.topic,
            where=shape.where,
            limit=shape.limit,
            dry_run=shape.dry_run,
            force=shape.force,
            max_redrives=shape.max_redrives,
            repaired=_repaired(shape.values or {}),
        )
        call.note(messages=str(redriven.redriven), **given(shape, "message_ids", "values"))
        return _redriven(redriven, shape.dry_run)

    async def retry(self, call: Call) -> Response:
        shape: shapes.Retry = await optional_body(call, _RETRY)
        identity = _identity(call)
        redriven = await self._engine.dead_letters.redrive(
            call.scope,
            call.parameters["group"],
            message_ids=[identity],
            force=shape.force,
            repaired=_repaired({} if shape.repaired is None else {identity: shape.repaired}),
        )
        return _redriven(redriven, False)

    async def discard(self, call: Call) -> Response:
        shape: shapes.DiscardDead = await decoded_body(call, _DISCARD)
        discarded = await self._engine.dead_letters.discard(
            call.scope,
            call.parameters["group"],
            message_ids=shape.message_ids,
            topic=shape.topic,
            where=shape.where,
            limit=shape.limit,
        )
        call.note(messages=str(discarded), **given(shape, "message_ids"))
        return json_response(shapes.Discarded(discarded=discarded))

    async def delete(self, call: Call) -> Response:
        group, identity = call.parameters["group"], _identity(call)
        await self._engine.dead_letters.discard(call.scope, group, message_ids=[identity], limit=MAX_PER_CALL)
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


def _shape(letter: DeadLetter) -> shapes.DeadLetterShape:
    message = letter.message or _NO_MESSAGE
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
        dead_at=to_time(letter.at_ms),
        owner=letter.owner,
        lineage=letter.lineage,
        redriven_to=letter.redriven_to,
        traceback=letter.traceback,
        without_message=letter.message is None,
    )


def _redriven(redriven: Redriven, dry_run: bool) -> Response:
    return json_response(
        shapes.RedrivenShape(
            dry_run=dry_run,
            redriven=redriven.redriven,
            refused=redriven.refused,
            ids=list(redriven.ids),
            refusals=[shapes.RefusalShape(id=identity, reason=reason) for identity, reason in redriven.refusals],
            has_more=redriven.has_more,
        )
    )
