"""The ASGI app: finds the route, asks who calls and whether they may, handles the call, answers, counts.

One way for all calls, without a framework: the publish of a single message is what it is measured by. What
handles each of the routes stands in `handlers`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import msgspec
import structlog

from lakelog.engine import Engine
from lakelog.errors import ConfigurationError, LakelogError, NotAllowed, Overloaded
from lakelog.model.token import Right
from lakelog.model.topic import Scope
from lakelog.server.auth import Authenticator, Grant, authorise
from lakelog.server.calls import JSON_TYPE, Answer, AsgiScope, Call, Disconnected, Header, Receive, Send, Streamed
from lakelog.server.drain import Drain
from lakelog.server.handlers import Handler, make_handlers
from lakelog.server.health import VERSION, HealthSource
from lakelog.server.homes import Homes
from lakelog.server.logs import RequestIds
from lakelog.server.metrics import CONTENT_TYPE, Metrics
from lakelog.server.openapi import describe
from lakelog.server.problems import answer_error
from lakelog.server.routes import ROUTES
from lakelog.server.routing import PUBLIC, Route, Router, check_routes
from lakelog.server.settings import ServerSettings
from lakelog.server.telemetry import Telemetry, set_status

MAX_IN_FLIGHT = 10_000
"""Calls at once, long polls included: each holds some memory that the budget does not see."""
SEND_BYTES = 256 << 10
SEND_SECONDS = 60.0
"""A caller that does not read its answer holds it in memory no longer than this."""
SAMPLE_SECONDS = 1.0
TRACED = frozenset({"publish", "fetch", "consume", "answers"})

_CLOSE: Header = (b"connection", b"close")
_UNREAD_BYTES = 64 << 10
_GONE = 499
_log = structlog.get_logger(__name__)
_audit = structlog.get_logger("lakelog.audit")


def create_app(
    engine: Engine,
    settings: ServerSettings,
    *,
    drain: Drain | None = None,
    health: HealthSource | None = None,
    everyone: Scope | None = None,
    address: str | None = None,
) -> App:
    """The app over a started engine. `everyone` is the scope of all callers when there is no authentication.

    With an `address` at which other servers reach this one, calls are passed on to the homes of their groups.
    """
    if settings.authenticate == (everyone is not None):
        raise ConfigurationError("Give a scope for everyone if, and only if, authentication is off.")
    drain = drain or Drain()
    metrics = Metrics()
    homes = Homes(engine.catalog.groups, address, drain, metrics) if address else None
    health = health or HealthSource(engine, drain)
    handlers = {**make_handlers(engine, drain, metrics, homes), "healthz": health.healthz, "readyz": health.readyz}
    return App(engine, handlers, Authenticator(engine.catalog, everyone=everyone), metrics, drain, homes=homes)


class App:
    """The app itself; made by `create_app`."""

    def __init__(
        self,
        engine: Engine,
        handlers: dict[str, Handler],
        authenticator: Authenticator,
        metrics: Metrics,
        drain: Drain,
        routes: tuple[Route, ...] = ROUTES,
        homes: Homes | None = None,
    ) -> None:
        self._handlers = {**handlers, "metrics": self._metrics_page, "openapi": self._openapi}
        check_routes(routes, self._handlers)
        self._router = Router(routes)
        self._audited = {r.operation for r in routes if isinstance(r.rule, frozenset) and Right.MANAGE in r.rule}
        self._budget = engine.budget
        self._authenticator = authenticator
        self._metrics = metrics
        self._drain = drain
        self._homes = homes
        self._telemetry = Telemetry()
        self._timed = {"fetch": metrics.fetch_seconds, "consume": metrics.consume_seconds}
        self._answer = self._traced if self._telemetry.enabled else self._handled
        self._ids = RequestIds()
        self._description = msgspec.json.encode(describe(routes, VERSION))
        self.in_flight = 0

    async def __call__(self, asgi: AsgiScope, receive: Receive, send: Send) -> None:
        if asgi["type"] != "http":
            await self._other(asgi, receive, send)
            return
        started = time.perf_counter()
        call = Call(asgi, receive, self._budget)
        call.request_id = self._ids.take(call.headers.get(b"x-request-id"))
        operation = "none"
        self.in_flight += 1
        try:
            try:
                if self.in_flight > MAX_IN_FLIGHT:
                    raise Overloaded("The server has too many calls in hand; try again shortly.", retry_after=1)
                route, call.parameters = self._router.find(asgi["method"], asgi["path"])
                operation = route.operation
                answer = await self._answer(route, call)
            except Disconnected:
                self._metrics.answered(operation, _GONE)
                return
            except Exception as error:
                answer = self._failed(error, operation, call)
            await self._send(answer, call, send)
            self._metrics.answered(operation, answer.status)
            if operation == "publish":
                self._metrics.publish_seconds.observe(time.perf_counter() - started)
            elif operation in self._timed and not call.waited:
                self._timed[operation].observe(time.perf_counter() - started)
        finally:
            self.in_flight -= 1
            call.release()

    async def _traced(self, route: Route, call: Call) -> Answer:
        if route.operation not in TRACED:
            return await self._handled(route, call)
        with self._telemetry.span(route, call.headers) as span:
            try:
                answer = await self._handled(route, call)
            except Exception as error:
                set_status(span, answer_error(error, call.request_id).status)
                raise
            set_status(span, answer.status)
            return answer

    async def _handled(self, route: Route, call: Call) -> Answer:
        rule = route.rule
        grant: Grant | None = None
        if rule is not PUBLIC:
            grant = await self._authenticator.grant(call.headers.get(b"authorization"))
            call.scope = grant.scope
        try:
            authorise(rule, grant)
        except NotAllowed:
            self._record(route, call, grant, 403)
            raise
        answer = await self._handlers[route.operation](call)
        if route.operation in self._audited:
            self._record(route, call, grant, answer.status)
        return answer

    def _record(self, route: Route, call: Call, grant: Grant | None, status: int) -> None:
        if grant is not None:
            _audit.info(
                route.operation,
                token=grant.token,
                project=grant.scope.project,
                environment=grant.scope.environment,
                status=status,
                request_id=call.request_id.decode(),
                **call.parameters,
            )

    def _failed(self, error: Exception, operation: str, call: Call) -> Answer:
        answer = answer_error(error, call.request_id)
        if answer.status >= 500:
            is_known = isinstance(error, LakelogError)
            _log.error(
                "call failed",
                route=operation,
                status=answer.status,
                request_id=call.request_id.decode(),
                reason=str(error),
                exc_info=None if is_known else error,
            )
        return answer

    async def _send(self, answer: Answer, call: Call, send: Send) -> None:
        body = answer.body
        headers: list[Header] = [*answer.headers, (b"x-request-id", call.request_id)]
        if isinstance(answer, Streamed):
            await self._stream(answer, headers, send)
            return
        if answer.status != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        if self._drain.begun or (answer.status >= 400 and _leaves_much_unread(call)):
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if len(body) <= SEND_BYTES:
            await send({"type": "http.response.body", "body": body})
            return
        # In pieces: the server takes the next one only when the caller has read most of the last.
        async with asyncio.timeout(SEND_SECONDS):
            for at in range(0, len(body), SEND_BYTES):
                piece = body[at : at + SEND_BYTES]
                more = at + SEND_BYTES < len(body)
                await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _stream(self, answer: Streamed, headers: list[Header], send: Send) -> None:
        async with aclosing(answer.pieces) as pieces:
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for piece in pieces:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _metrics_page(self, call: Call) -> Answer:
        self._sample()
        return Answer(200, self._metrics.render(), (b"content-type", CONTENT_TYPE))

    async def _openapi(self, call: Call) -> Answer:
        return Answer(200, self._description, JSON_TYPE)

    def _sample(self) -> None:
        budget = self._budget
        self._metrics.sample(in_flight=self.in_flight, memory_used=budget.used, memory_limit=budget.limit)

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
                if self._homes is not None:
                    await self._homes.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                if sampling is not None:
                    sampling.cancel()
                if self._homes is not None:
                    await self._homes.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _keep_sampling(self) -> None:
        # Another worker may be the one that is asked for metrics.
        while True:
            self._sample()
            await asyncio.sleep(SAMPLE_SECONDS)


def _leaves_much_unread(call: Call) -> bool:
    """Whether the connection is better closed than read on, only to reach the next request behind the body."""
    if call.body_read:
        return False
    length = call.headers.get(b"content-length", b"0")
    return (
        b"transfer-encoding" in call.headers or len(length) > 9 or not length.isdigit() or int(length) > _UNREAD_BYTES
    )
