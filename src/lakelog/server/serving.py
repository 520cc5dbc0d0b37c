"""Runs the app on uvicorn: listening, connection limits, and shutdown at SIGTERM.

At SIGTERM, readiness returns 503 and responses close their connections. Soon after, the server accepts no new
connections. Running calls finish, and long polls return what they have. Then the engine finishes its commits and
closes. All of this takes at most `drain_seconds`. The supervisor manages several processes.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import FrameType

import pyarrow as pa
import uvicorn
import uvloop

from lakelog import failpoints
from lakelog.engine import Engine
from lakelog.errors import ConfigurationError, Unavailable
from lakelog.reporting import log_event
from lakelog.server.app import App, create_app
from lakelog.server.auth import check_exposure
from lakelog.server.drain import Drain
from lakelog.server.group_routing import advertised_host
from lakelog.server.health import HealthSource, check_durability
from lakelog.server.logs import configure_logging
from lakelog.server.protocol import Protocol
from lakelog.server.settings import ServerSettings
from lakelog.server.starting import log_not_durable, log_start
from lakelog.server.supervisor import EXIT_CONFIGURATION, EXIT_UNAVAILABLE, supervise
from lakelog.server.unready import unready

OpenEngine = Callable[[ServerSettings], AbstractAsyncContextManager[Engine]]
"""Opens stores and starts the engine and its maintenance; closes everything at the end.

With several workers, each calls it: it must be a function of a module, so that it can be pickled.
"""

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
LAME_DUCK_SECONDS = 2.0
"""The longest time that idle connections and load balancers get to notice the shutdown."""

_log = logging.getLogger(__name__)


def run(open_engine: OpenEngine, settings: ServerSettings) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Call it in the main thread of a process."""
    check_exposure(settings.host, settings.authenticate)
    configure_logging(settings.log_level, settings.log_format)
    sockets = listen(settings)
    if settings.workers > 1:
        log_start(settings, sockets[0])
        return supervise(partial(_work, open_engine, settings), sockets, grace_seconds=settings.drain_seconds + 2)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(open_engine, settings, sockets[0]))
    return 0


async def serve(
    open_engine: OpenEngine,
    settings: ServerSettings,
    listener: socket.socket | None = None,
    *,
    supervised: bool = False,
) -> None:
    """Serve in this process and event loop until a signal. Refuse to start if messages would not be durable.

    A `supervised` process leaves the log lines about start and stop to its supervisor.
    """
    check_exposure(settings.host, settings.authenticate)
    stack = AsyncExitStack()
    sockets = [listener or listen(settings)[0]]
    async with unready(sockets[0]):
        engine = await stack.enter_async_context(open_engine(settings))
    try:
        address = None
        if settings.forward:
            # Workers share the port, but each has its own port for other servers.
            own = _own_listener(sockets[0])
            sockets.append(own)
            address = f"{advertised_host(settings.host, settings.advertise_host)}:{own.getsockname()[1]}"
        app, drain = await _app(engine, settings, address, supervised)
        server = _Server(_config(app, settings), drain, settings, supervised)
        _NoPandas.let_arrow_see()
        _calm_the_collector()
        await server.serve(sockets=sockets)
    finally:
        try:
            async with asyncio.timeout(max(1.0, settings.drain_seconds * 0.1)):
                await stack.aclose()
        except TimeoutError:
            message = "The engine did not close in time. Calls that it did not answer may or may not have been written."
            log_event(_log, logging.ERROR, "engine_not_closed", message)
    if not supervised:
        log_event(_log, logging.INFO, "server_stopped", "Server stopped.")


class _NoPandas:
    """Load pandas now if it is installed, because Arrow would load it during the first publish.

    Arrow checks only once. A later import of pandas still works.
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
    """Freeze loaded objects and collect garbage less often, which saves a tenth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def listen(settings: ServerSettings) -> list[socket.socket]:
    """Return a listening socket for each worker on one port; the kernel spreads connections over them."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Bind once without sharing first: sharing sockets would also share the port with another running server.
        with socket.create_server(address[:2], family=family) as probe:
            address = probe.getsockname()
        return [_socket(family, address, shared=settings.workers > 1) for _ in range(settings.workers)]
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {settings.host} port {settings.port}: {error.strerror or error}. Choose another with "
            "--host and --port."
        ) from error


async def _app(engine: Engine, settings: ServerSettings, address: str | None, supervised: bool) -> tuple[App, Drain]:
    weak = await check_durability(engine, settings.allow_not_durable)
    if weak and not supervised:
        log_not_durable(weak)
    if failpoints.armed:
        points = sorted(failpoints.armed)
        log_event(_log, logging.WARNING, "failpoints_armed", f"Fail points armed: {', '.join(points)}", points=points)
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
    """Return a socket on a free port of the same interface, so that it is not more widely reachable."""
    return _socket(shared.family, (shared.getsockname()[0], 0), shared=False)


def _work(open_engine: OpenEngine, settings: ServerSettings, worker: int, listener: socket.socket) -> None:
    """Run a worker process from its start to its end."""
    configure_logging(settings.log_level, settings.log_format, worker=worker)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(open_engine, settings, listener, supervised=True))
    except (ConfigurationError, Unavailable) as error:
        message = f"The worker cannot serve: {error.detail}"
        log_event(_log, logging.ERROR, "worker_not_serving", message, code=error.code, reason=error.detail)
        sys.exit(EXIT_CONFIGURATION if isinstance(error, ConfigurationError) else EXIT_UNAVAILABLE)


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
    """A uvicorn server with our shutdown. It ends by returning, not by the signal."""

    def __init__(self, config: uvicorn.Config, drain: Drain, settings: ServerSettings, supervised: bool) -> None:
        super().__init__(config)
        self._drain = drain
        self._settings = settings
        self._supervised = supervised
        self._lame_duck_seconds = min(LAME_DUCK_SECONDS, settings.drain_seconds * 0.1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if sockets and not self._supervised:
            log_start(self._settings, sockets[0])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._drain.begun:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
        else:
            self._loop.call_soon_threadsafe(self._begin, sig)

    def _begin(self, sig: int) -> None:
        if not self._supervised:
            name, seconds = signal.Signals(sig).name, self._settings.drain_seconds
            message = f"{name} received: finishing running calls, for at most {seconds:g} s."
            log_event(_log, logging.INFO, "server_draining", message, signal=name, drain_seconds=seconds)
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
