"""The routes of members: join, heartbeat, leave. The engine assigns partitions."""

from __future__ import annotations

import msgspec

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import JoinAsk
from lakelog.model.group import MAX_OWNER_BYTES
from lakelog.server.bodies import check_identity, json_body, json_response
from lakelog.server.calls import Call, Response
from lakelog.server.group_routing import GroupRouting
from lakelog.server.messages import decode_json
from lakelog.server.wishes import wish_of
from lakelog.wire import group_shapes as shapes

_JOIN = msgspec.json.Decoder(shapes.Join)


class MemberRoutes:
    """Handles calls of members."""

    def __init__(self, engine: Engine, routing: GroupRouting | None = None) -> None:
        self._engine = engine
        self._routing = routing

    async def join(self, call: Call) -> Response:
        body = await json_body(call)
        shape: shapes.Join = decode_json(_JOIN, body)
        check_identity("member_id", shape.member_id, MAX_OWNER_BYTES)
        if (forwarded := await self._elsewhere(call, body)) is not None:
            return forwarded
        ask = JoinAsk(
            group=call.parameters["group"],
            topics=shape.topics,
            member_id=shape.member_id,
            session_ms=shape.session_timeout_ms,
            client_host=described_host(self._client_host(call), shape.client),
            replaces=shape.replace,
            wish=wish_of(shape, shape.kind),
        )
        return json_response(await self._engine.members.join(call.scope, ask))

    async def _elsewhere(self, call: Call, body: bytes) -> Response | None:
        if self._routing is None or (home := self._routing.elsewhere(call, call.parameters["group"])) is None:
            return None
        return await self._routing.forward(call, body, home)

    def _client_host(self, call: Call) -> str:
        """Return the peer's address. Headers are not trusted."""
        if self._routing is not None and (told := self._routing.client_host(call)) is not None:
            return told
        peer = call.asgi.get("client")
        return str(peer[0]) if peer else ""


def described_host(host: str, client: str | None) -> str:
    """Return a member's address, and the kind of its program."""
    return f"{host} ({client})".strip() if client else host
