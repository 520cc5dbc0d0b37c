"""The ASGI app: finds the route, authenticates and authorizes the caller, handles the call, responds and counts.

It uses no framework, because the publish of a single message is its benchmark. `handlers` has the handler of each
route.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from functools import cached_property, partial

import msgspec

from lakelog.engine import Engine
from lakelog.engine.auditing import calling
from lakelog.errors import ConfigurationError, NotAllowed, NotAuthenticated, Overloaded
from lakelog.model.topic import Scope
from lakelog.reporting import hear_created_groups
from lakelog.server.audit import record_change, record_created_group, record_refusal
from lakelog.server.auth import Authenticator, Grant, authorise, needed_by, refusal_of_origin
from lakelog.server.callers import caller_of
from lakelog.server.calls import (
    HOLD,
    JSON_TYPE,
    NEEDS_GRANT,
    AsgiApp,
    AsgiScope,
    Call,
    Disconnected,
    Handler,
    Header,
    Receive,
    Response,
    Send,
    StreamedResponse,
)
from lakelog.server.connections import Connections
from lakelog.server.drain import Drain
from lakelog.server.fast_publish import FastPublish
from lakelog.server.group_metrics import GroupMetrics
from lakelog.server.group_routing import GroupRouting
from lakelog.server.handlers import make_handlers
from lakelog.server.health import VERSION, HealthSource
from lakelog.server.iceberg import iceberg_error, is_iceberg
from lakelog.server.metrics import CONTENT_TYPE, Metrics
from lakelog.server.metrics_port import MetricsPort
from lakelog.server.openapi import describe
from lakelog.server.problems import error_response
from lakelog.server.routing import Router, Row, check_operations
from lakelog.server.server_grants import GRANT
from lakelog.server.settings import ServerSettings
from lakelog.server.telemetry import Telemetry, set_status
from lakelog.server.tls import ServerCertificate
from lakelog.server.traffic import Traffic
from lakelog.storage.turns import current_environment
from lakelog.wire.operations import OPERATIONS, PUBLIC

JOIN_BYTES = 64 << 10
"""Up to this size, a body is sent together with its head; for a larger body, a second system call is cheaper."""
SEND_BYTES = 256 << 10
SEND_SECONDS = 60.0
"""Timeout for a caller that does not read its response, which is kept in memory."""
SAMPLE_SECONDS = 1.0
MONITORING = frozenset({"healthz", "readyz", "metrics"})
"""Calls that are handled even at capacity, because a busy server must not look dead."""
CREATE_GROUPS = frozenset({"consume", "join", "push"})
"""Calls that create their group if it does not exist."""
TRACED = frozenset({"publish", "fetch", "consume", "answers"})
CONSOLE_PATH = "/console"
"""The path below which the console is, if the server has it."""

_CLOSE: Header = (b"connection", b"close")
_UNREAD_BYTES = 64 << 10
_GONE = 499


def create_app(
    engine: Engine,
    settings: ServerSettings,
    *,
    drain: Drain | None = None,
    health: HealthSource | None = None,
    everyone: Scope | None = None,
    address: str | None = None,
    certificate: ServerCertificate | None = None,
) -> App:
    """Return the app over a started engine. `everyone` is the scope of all callers if authentication is off.

    With an `address` at which other servers reach this one, calls are forwarded to the home servers of their groups.
    The address uses TLS if there is a `certificate`.
    """
    if settings.authenticate == (everyone is not None):
        raise ConfigurationError("Give a scope for everyone if, and only if, authentication is off.")
    drain = drain or Drain()
    source = health or HealthSource(engine, drain)
    metrics = Metrics(
        count_unreachable=lambda: source.cells_unreachable,
        count_lost=lambda: engine.losses.total,
        count_expired=lambda: engine.dead_letter_expiry.removed,
    )
    routing = GroupRouting(engine.catalog.groups, address, drain, metrics, certificate) if address else None
    group_metrics = GroupMetrics(engine, routing)
    handlers = make_handlers(engine, drain, metrics, routing, group_metrics)
    handlers |= {"healthz": source.healthz, "readyz": source.readyz}
    app = App(engine, handlers, Authenticator(engine.catalog, everyone=everyone), metrics, drain, routing=routing)
    app.metrics_port = MetricsPort(group_metrics)
    app.connections = Connections(settings.max_connections, settings.max_connections_per_address)
    return app


class App:
    """The app itself; created by `create_app`."""

    def __init__(
        self,
        engine: Engine,
        handlers: dict[str, Handler],
        authenticator: Authenticator,
        metrics: Metrics,
        drain: Drain,
        operations: tuple[Row, ...] = OPERATIONS,
        routing: GroupRouting | None = None,
    ) -> None:
        self._handlers = {**handlers, "metrics": self._metrics_page, "openapi": self._openapi}
        check_operations(operations, self._handlers)
        self._router = Router(operations)
        self._budget = engine.budget
        self._audit = engine.audit
        self._authenticator = authenticator
        self._metrics = metrics
        self.drain = drain
        self._routing = routing
        self._telemetry = Telemetry()
        self._answer = self._traced if self._telemetry.enabled else self._handled
        self._operations = operations
        self.traffic = Traffic(metrics)
        self.connections: Connections | None = None
        self.metrics_port: AsgiApp | None = None
        """The app of the port for metrics on loopback."""
        self.console: AsgiApp | None = None
        """The pages for people, which call this app with the token of their viewer."""
        rights = next(each.rights for each in operations if each.name == "publish")
        self.fast_publish = (
            None if self._telemetry.enabled else FastPublish(engine, authenticator, self.traffic, drain, rights)
        )
        """Return the fast path of most publishes; None if each of them needs a span."""

    async def __call__(self, asgi: AsgiScope, receive: Receive, send: Send) -> None:
        if asgi["type"] != "http":
            await self._other(asgi, receive, send)
            return
        if self.console is not None and asgi["path"].startswith(CONSOLE_PATH) and NEEDS_GRANT not in asgi:
            rest = asgi["path"][len(CONSOLE_PATH) :]
            if not rest or rest[0] == "/":
                await self.console({**asgi, "path": rest}, receive, send)
                return
        started = time.perf_counter()
        call = Call(asgi, receive, self._budget)
        traffic = self.traffic
        call.request_id = traffic.ids.take(call.headers.get(b"x-request-id"))
        operation = "none"
        traffic.in_flight += 1
        try:
            try:
                row, call.parameters = self._router.find(asgi["method"], asgi["path"])
                operation = row.name
                if traffic.is_flooded and operation not in MONITORING:
                    raise _too_many_calls()
                answer = await self._answer(row, call)
            except Disconnected:
                self._metrics.answered(operation, _GONE)
                return
            except Exception as error:
                answer = traffic.failed(error, operation, call.request_id, is_known=call.watch is not None)
                if is_iceberg(asgi["path"]):
                    answer = iceberg_error(answer)
            await self._send(answer, call, send)
            traffic.answered(operation, answer.status, None if call.waited else started)
        finally:
            traffic.in_flight -= 1
            call.close()
            if call.environment_id is not None:
                traffic.shares.give(call.environment_id, 1)

    async def _traced(self, operation: Row, call: Call) -> Response:
        if operation.name not in TRACED:
            return await self._handled(operation, call)
        with self._telemetry.span(operation, call.headers) as span:
            try:
                answer = await self._handled(operation, call)
            except Exception as error:
                set_status(span, error_response(error, call.request_id).status)
                raise
            set_status(span, answer.status)
            return answer

    async def _handled(self, operation: Row, call: Call) -> Response:
        rights = operation.rights
        grant: Grant | None = None
        if rights is not PUBLIC:
            if not self._authenticator.accepts_origin(call.headers):
                raise NotAllowed(refusal_of_origin(call.headers))
            grant = call.grant = await self._grant(call)
            call.scope = grant.scope
            call.watch = partial(self._authenticator.watch, grant)
            self._begin(call, grant.scope.environment_id)
            await self.traffic.turns.take(grant.scope.environment_id)
        try:
            authorise(rights, grant)
        except NotAllowed:
            if grant is not None:
                record_refusal(operation.name, call, grant, needed_by(rights))
                caller = caller_of(call, self._routing)
                await self._audit.refused(caller, operation.name, needed_by(rights), call.parameters)
            raise
        handler = self._handlers[operation.name]
        if grant is not None and operation.name in CREATE_GROUPS:
            created = partial(record_created_group, call, grant)
            with hear_created_groups(created), calling(partial(caller_of, call, self._routing)):
                answer = await handler(call)
        else:
            answer = await handler(call)
        if call.waited and grant is not None:
            await self.traffic.turns.take(grant.scope.environment_id)
        if operation.audit is not None and grant is not None and not call.passed_on:
            record_change(operation, call, grant, answer.status)
        return answer

    async def _grant(self, call: Call) -> Grant:
        if self._routing is not None and (signed := call.headers.get(GRANT)) is not None:
            return await self._routing.accept(call, signed)
        if NEEDS_GRANT in call.asgi:
            raise NotAuthenticated("This port is for other servers. Use the server's URL, with a certificate.")
        return await self._authenticator.grant(call.headers.get(b"authorization"))

    def _begin(self, call: Call, environment: int) -> None:
        """Count a call of the environment, or refuse it if there is no room for it."""
        traffic = self.traffic
        if not traffic.has_room(environment, traffic.in_flight - 1):
            raise _too_many_calls()
        traffic.shares.take(environment, 1)
        call.environment_id = environment
        current_environment.set(environment)

    async def _send(self, answer: Response, call: Call, send: Send) -> None:
        body = answer.body
        headers: list[Header] = [*answer.headers, (b"x-request-id", call.request_id)]
        if isinstance(answer, StreamedResponse):
            await self._stream(answer, headers, send)
            return
        if answer.status != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        if self.drain.begun or (answer.status >= 400 and _leaves_much_unread(call)):
            headers.append(_CLOSE)
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if len(body) <= SEND_BYTES:
            # Without a body, nothing follows the head, so it must not be held back.
            if 0 < len(body) <= JOIN_BYTES and HOLD in call.asgi and call.asgi["method"] != "HEAD":
                call.asgi[HOLD]()
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        await send(start)
        # In pieces: the server accepts the next piece only when the caller has read most of the last one.
        async with asyncio.timeout(SEND_SECONDS):
            for at in range(0, len(body), SEND_BYTES):
                piece = body[at : at + SEND_BYTES]
                more = at + SEND_BYTES < len(body)
                await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _stream(self, answer: StreamedResponse, headers: list[Header], send: Send) -> None:
        async with aclosing(answer.pieces) as pieces:
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for piece in pieces:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _metrics_page(self, call: Call) -> Response:
        self._sample()
        return Response(200, self._metrics.render(), (b"content-type", CONTENT_TYPE))

    async def _openapi(self, call: Call) -> Response:
        return Response(200, self._description, JSON_TYPE)

    @cached_property
    def _description(self) -> bytes:
        # Made for the first request: it takes more time than everything else that creates an app.
        return msgspec.json.encode(describe(self._operations, VERSION))

    def _sample(self) -> None:
        budget = self._budget
        self._metrics.sample(in_flight=self.traffic.in_flight, memory_used=budget.used, memory_limit=budget.limit)

    async def _other(self, asgi: AsgiScope, receive: Receive, send: Send) -> None:
        if asgi["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        sampling: asyncio.Task[None] | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                sampling = asyncio.create_task(self._keep_sampling())
                if self._routing is not None:
                    await self._routing.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                if sampling is not None:
                    sampling.cancel()
                self._authenticator.close()
                if self._routing is not None:
                    await self._routing.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _keep_sampling(self) -> None:
        # Another worker process may serve the metrics.
        while True:
            self._sample()
            began = time.perf_counter()
            await asyncio.sleep(SAMPLE_SECONDS)
            self._metrics.loop_delay.observe(max(0.0, time.perf_counter() - began - SAMPLE_SECONDS))


def _too_many_calls() -> Overloaded:
    return Overloaded("The server is handling too many calls. Retry shortly.", retry_after=1)


def _leaves_much_unread(call: Call) -> bool:
    """Return whether it is better to close the connection than to read the rest of the body."""
    if call.body_read:
        return False
    length = call.headers.get(b"content-length", b"0")
    return (
        b"transfer-encoding" in call.headers or len(length) > 9 or not length.isdigit() or int(length) > _UNREAD_BYTES
    )
