"""The caller of a call over HTTP: its environment, its address and its token."""

from __future__ import annotations

from lakelog.engine.callers import Caller
from lakelog.model.audit import Actor, ActorKind
from lakelog.server.auth import NO_TOKEN
from lakelog.server.calls import Call
from lakelog.server.group_routing import GroupRouting

_ANONYMOUS = Actor(kind=ActorKind.ANONYMOUS)


def caller_of(call: Call, routing: GroupRouting | None) -> Caller:
    """Return the caller of an authenticated call."""
    grant = call.grant
    token = "" if grant is None or grant.token == NO_TOKEN else grant.token
    return Caller(
        scope=call.scope,
        host=_host(call, routing),
        token=token,
        actor=Actor(kind=ActorKind.TOKEN, id=token, name=grant.name) if grant is not None and token else _ANONYMOUS,
        request_id=call.request_id.decode(errors="replace"),
    )


def _host(call: Call, routing: GroupRouting | None) -> str:
    """Return the address of the caller's machine. Headers are not trusted."""
    if routing is not None and (told := routing.client_host(call)) is not None:
        return told
    peer = call.asgi.get("client")
    return str(peer[0]) if peer else ""
