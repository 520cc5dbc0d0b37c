"""The handler of all operations that have a request and a reply: decode, call the engine, encode.

Operations that carry bytes have their own handlers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from lakelog.engine.auditing import given, named_objects
from lakelog.engine.operations import Verbs
from lakelog.errors import InvalidRequest, NotAllowed
from lakelog.model.token import Right
from lakelog.server.bodies import json_body, json_response, optional_json_body
from lakelog.server.callers import caller_of
from lakelog.server.calls import Call, Response
from lakelog.server.drain import Drain
from lakelog.server.group_routing import GroupRouting
from lakelog.server.messages import decode_json
from lakelog.server.query import known_query
from lakelog.server.waiting import unless_ended
from lakelog.wire.operations.operation import Audit, Operation


class Dispatch:
    """Handles the calls of one operation."""

    def __init__(
        self, operation: Operation[Any, Any], verbs: Verbs, drain: Drain, routing: GroupRouting | None
    ) -> None:
        self._operation = operation
        self._verbs = verbs
        self._drain = drain
        self._routing = routing
        rest = operation.rest
        self._decoder = None if rest is None else msgspec.json.Decoder(rest)

    async def __call__(self, call: Call) -> Response:
        operation = self._operation
        body = await self._body(call)
        request = operation.with_path(call.parameters, self._rest(call, body))
        if (forwarded := await self._forwarded(call, request, body)) is not None:
            return forwarded
        audit = operation.audit
        if audit is not None:
            _note_request(call, operation, audit, request)
        is_redacted = self._is_redacted(call, request)
        reply = await self._reply(call, request)
        if reply is None:
            return Response(204, b"")
        if audit is not None and audit.result is not None:
            call.note(messages=str(getattr(reply, audit.result)))
        if audit is not None and audit.made is not None:
            call.note(**{audit.made: str(getattr(reply, audit.made))})
        if is_redacted and operation.redaction is not None:
            reply = operation.redaction.hide(reply)
        answer = json_response(reply if operation.form is None else operation.form.write(reply), operation.status)
        if operation.method == "GET":
            # Only reads are refused here: a change is done already.
            call.hold(len(answer.body))
        return answer

    def _is_redacted(self, call: Call, request: Any) -> bool:
        """Return whether the caller may inspect only. Raise `NotAllowed` if the request needs the right to read."""
        redaction, grant = self._operation.redaction, call.grant
        if redaction is None or grant is None or Right.INSPECT not in grant.rights or Right.READ in grant.rights:
            return False
        for name in redaction.refused:
            if getattr(request, name) is not None:
                raise NotAllowed(f"`{name}` needs the right {Right.READ}, and the token does not have it.")
        return True

    async def _body(self, call: Call) -> bytes:
        if self._decoder is None or self._operation.method == "GET":
            return b""
        return await (json_body(call) if self._operation.needs_body else optional_json_body(call))

    def _rest(self, call: Call, body: bytes) -> Struct | None:
        """Return the fields that are not in the path."""
        rest = self._operation.rest
        if self._operation.method == "GET":
            names = frozenset() if rest is None else frozenset(rest.__struct_encode_fields__)
            query = dict(known_query(call, names))
            return None if rest is None else _converted(query, rest)
        if self._decoder is None:
            return None
        found: Struct = decode_json(self._decoder, body)
        return found

    async def _forwarded(self, call: Call, request: Any, body: bytes) -> Response | None:
        """Return the reply of the server that should handle the call, if that is another one and it replied."""
        if self._routing is None or not self._operation.home:
            return None
        home = self._routing.elsewhere(call, *(getattr(request, name) for name in self._operation.home))
        return None if home is None else await self._routing.forward(call, body, home)

    async def _reply(self, call: Call, request: Any) -> Any:
        caller = caller_of(call, self._routing)
        if self._operation.waits and request.wait_ms and not self._drain.begun:
            call.waited = True
            work = self._verbs.call(self._operation, caller, request)
            found = await unless_ended(call, self._drain, work)
            if found is not None:
                return found
            request = msgspec.structs.replace(request, wait_ms=0)
        return await self._verbs.call(self._operation, caller, request)


def _converted(query: dict[str, str], rest: type[Struct]) -> Struct:
    try:
        found = msgspec.convert(query, rest, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}.") from error
    # The conversion reads the text "null" as None, and a number as a time in seconds.
    for name, encoded in zip(rest.__struct_fields__, rest.__struct_encode_fields__, strict=True):
        if encoded in query and getattr(found, name) is None:
            raise InvalidRequest(f"`{encoded}` must not be null. Leave it out instead.")
        if isinstance(getattr(found, name), datetime) and ":" not in query[encoded]:
            raise InvalidRequest(
                f"`{encoded}` must be a time such as 2026-01-31T12:00:00Z, not {query[encoded][:40]!r}."
            )
    return found


def _note_request(call: Call, operation: Operation[Any, Any], audit: Audit, request: Struct) -> None:
    """Record the given fields for the audit log, except those that the text of the line names."""
    call.parameters = {**call.parameters, **named_objects(operation, request)}
    call.note(**given(request, *call.parameters, *audit.hidden, *audit.counted))
    call.note(**{name: str(len(getattr(request, name))) for name in audit.counted})
