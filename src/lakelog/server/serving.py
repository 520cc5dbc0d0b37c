"""Runs the app on uvicorn: listening, the limits of the connection, and the way out at SIGTERM.

At SIGTERM readiness turns 503 and answers close their connections; soon after, no connection is taken any more; running
calls finish and long polls answer with what they have; then the engine finishes its commits and is closed; all of it
within `drain_seconds`. Several processes are the supervisor's work.
"""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import FrameType

import httptools
import pyarrow as pa
import structlog
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakelog import failpoints
from lakelog.engine import Engine
from lakelog.errors import ConfigurationError, InvalidRequest
from lakelog.server.app import App, create_app
from lakelog.server.auth import check_exposure
from lakelog.server.calls import HttpRefusal
from lakelog.server.drain import Drain
from lakelog.server.health import HealthSource, check_durability
from lakelog.server.homes import advertised_host
from lakelog.server.logs import configure_logging
from lakelog.server.problems import answer_error
from lakelog.server.settings import ServerSettings
from lakelog.server.supervisor import EXIT_CONFIGURATION, supervise

OpenEngine = Callable[[ServerSettings], AbstractAsyncContextManager[Engine]]
"""Opens stores, starts the engine and whatever runs beside it; closes all of it at the end.

With several workers it is called in each of them: a function of a module, so that it can be named in another process.
"""

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
MAX_HEAD_BYTES = 64 << 10
LAME_DUCK_SECONDS = 2.0
"""How long, at most, idle connections and load balancers get to notice that the server is going."""

_log = structlog.get_logger(__name__)


def run(open_engine: OpenEngine, settings: ServerSettings) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. For the main thread of a process."""
    check_exposure(settings.host, settings.authenticate)
    configure_logging(settings.log_level, settings.log_format)
    sockets = listen(settings)
    if settings.workers > 1:
        return supervise(partial(_work, open_engine, settings), sockets, grace_seconds=settings.drain_seconds + 2)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(open_engine, settings, sockets[0]))
    return 0


async def serve(open_engine: OpenEngine, settings: ServerSettings, listener: socket.socket | None = None) -> None:
    """Serves in this process and loop until a signal; refuses to begin where messages would not be safe."""
    check_exposure(settings.host, settings.authenticate)
    stack = AsyncExitStack()
    engine = await stack.enter_async_context(open_engine(settings))
    try:
        sockets = [listener or listen(settings)[0]]
        address = None
        if settings.forward:
            # Workers share the port: for other servers, each has one of its own.
            own = _own_listener(sockets[0])
            sockets.append(own)
            address = f"{advertised_host(settings.host, settings.advertise_host)}:{own.getsockname()[1]}"
        app, drain = await _app(engine, settings, address)
        server = _Server(_config(app, settings), drain, settings.drain_seconds)
        _NoPandas.let_arrow_see()
        _calm_the_collector()
        await server.serve(sockets=sockets)
    finally:
        try:
            async with asyncio.timeout(max(1.0, settings.drain_seconds * 0.1)):
                await stack.aclose()
        except TimeoutError:
            _log.error("the engine did not close in time; what it had in hand is of unknown outcome to its callers")
    _log.info("ended")


class _NoPandas:
    """Arrow looks for pandas at its first list: where it is installed, the first publish would wait while it loads.

    Arrow looks once, and whoever imports pandas later gets it.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)

    @classmethod
    def let_arrow_see(cls) -> None:
        sys.meta_path.insert(0, cls)
        try:
            pa.array([])
        finally:
            sys.meta_path.remove(cls)


def _calm_the_collector() -> None:
    """What is loaded by now stays, and calls make few cycles: looking at everything every 700 objects costs a tenth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def listen(settings: ServerSettings) -> list[socket.socket]:
    """A listening socket for each worker, on one port: the kernel spreads connections over them."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Alone first: sockets that share a port would also share it with another server that was left running.
        with socket.create_server(address[:2], family=family) as probe:
            address = probe.getsockname()
        return [_socket(family, address, shared=settings.workers > 1) for _ in range(settings.workers)]
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {settings.host} port {settings.port}: {error.strerror or error}. Choose another with "
            "--host and --port."
        ) from error


async def _app(engine: Engine, settings: ServerSettings, address: str | None) -> tuple[App, Drain]:
    weak = await check_durability(engine, settings.allow_not_durable)
    for setting in weak:
        _log.warning("NOT DURABLE", setting=setting)
    if failpoints.armed:
        _log.warning("FAIL POINTS ARMED", points=sorted(failpoints.armed))
    everyone = None if settings.authenticate else await engine.catalog.scope_create("default", "default")
    drain = Drain()
    health = HealthSource(engine, drain, weak)
    return create_app(engine, settings, drain=drain, health=health, everyone=everyone, address=address), drain


def _socket(family: int, address: tuple[str, int], *, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(address)
    listener.listen(BACKLOG)
    return listener


def _own_listener(shared: socket.socket) -> socket.socket:
    """A socket on a free port of the same interface: it reaches no further than the one that was asked for."""
    return _socket(shared.family, (shared.getsockname()[0], 0), shared=False)


def _work(open_engine: OpenEngine, settings: ServerSettings, listener: socket.socket) -> None:
    """The whole life of a worker process."""
    configure_logging(settings.log_level, settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(open_engine, settings, listener))
    except ConfigurationError as error:
        _log.error("cannot serve", code=error.code, reason=error.detail)
        sys.exit(EXIT_CONFIGURATION)


def _config(app: App, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds * 0.8),
    )


class _Server(uvicorn.Server):
    """uvicorn with our way out. It ends by returning, not by the signal that it was sent."""

    def __init__(self, config: uvicorn.Config, drain: Drain, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain = drain
        self._lame_duck_seconds = min(LAME_DUCK_SECONDS, drain_seconds * 0.1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for listener in (sockets or [])[:1]:
            host, port = listener.getsockname()[:2]
            _log.info("listening", host=host, port=port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._drain.begun:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
        else:
            self._loop.call_soon_threadsafe(self._begin, sig)

    def _begin(self, sig: int) -> None:
        _log.info("draining", signal=signal.Signals(sig).name)
        self._drain.begin()
        if sig == signal.SIGINT:
            self.should_exit = True
        else:
            self._leaving = asyncio.ensure_future(self._leave())

    async def _leave(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._lame_duck_seconds
        while self.server_state.connections and loop.time() < until:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.05)
        self.should_exit = True


def _own_failure(error: BaseException | None) -> BaseException | None:
    """What failed in the server while it read a request, such as memory: nothing that its caller could mend."""
    if not isinstance(error, httptools.HttpParserCallbackError):
        return None
    cause = error.__context__
    return None if cause is None or isinstance(cause, (ValueError, httptools.HttpParserError)) else cause


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 with a limit for the head of a request, and problems for what is not HTTP at all."""

    _in_head = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        # The parser keeps an unfinished head in memory, however long it gets.
        self._head_bytes = self._head_bytes + len(data) if was_in_head and self._in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is over {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        # uvicorn calls it for whatever ended the parser, also where it was not the request.
        if failure := _own_failure(sys.exc_info()[1]):
            _log.error("a request could not be read; its connection is closed", error=repr(failure))
            self.transport.close()
            return
        refusal = HttpRefusal(400, msg)
        refusal.error = InvalidRequest(msg)
        answer = answer_error(refusal, b"none")
        head = b"HTTP/1.1 400 Bad Request\r\n" + b"".join(b"%s: %s\r\n" % header for header in answer.headers)
        self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body) + answer.body)
        self.transport.close()
