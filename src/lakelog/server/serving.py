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
import ssl
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
from lakelog.server.calls import AsgiApp
from lakelog.server.drain import Drain
from lakelog.server.health import HealthSource, check_durability
from lakelog.server.listening import BACKLOG, accepting, listen, listen_for_servers
from lakelog.server.logs import configure_logging
from lakelog.server.machine import advertised_host
from lakelog.server.metrics_port import listen_for_metrics, metrics_address
from lakelog.server.protocol import HEAD_SECONDS, Protocol
from lakelog.server.settings import ServerSettings
from lakelog.server.starting import log_not_durable, log_start
from lakelog.server.supervisor import EXIT_CONFIGURATION, EXIT_UNAVAILABLE, supervise
from lakelog.server.tls import ServerCertificate, TlsFiles, check, keep_loaded
from lakelog.server.unready import unready

OpenEngine = Callable[[ServerSettings], AbstractAsyncContextManager[Engine]]
"""Opens stores and starts the engine and its maintenance; closes everything at the end.

With several workers, each calls it: it must be a function of a module, so that it can be pickled.
"""

MakeConsole = Callable[[App], AsgiApp]
"""Makes the pages for people over the app of a worker; with several workers, a function of a module."""

KEEP_ALIVE_SECONDS = 75
LAME_DUCK_SECONDS = 2.0
"""The longest time that idle connections and load balancers get to notice the shutdown."""

_log = logging.getLogger(__name__)


def run(open_engine: OpenEngine, settings: ServerSettings, make_console: MakeConsole | None = None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Call it in the main thread of a process.

    The server has a console if there is a `make_console` and the settings want one.
    """
    check_exposure(settings.host, settings.authenticate)
    if settings.metrics_listen is not None:
        metrics_address(settings.metrics_listen)
    configure_logging(settings.log_level, settings.log_format)
    files = settings.tls_files()
    if files is not None:
        check(files)
    sockets = listen(settings)
    if settings.workers > 1:
        log_start(settings, sockets[0])
        work = partial(_work, open_engine, settings, make_console)
        return supervise(work, sockets, grace_seconds=settings.drain_seconds + 2, reloads=files is not None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(open_engine, settings, sockets[0], make_console=make_console))
    return 0


async def serve(
    open_engine: OpenEngine,
    settings: ServerSettings,
    listener: socket.socket | None = None,
    *,
    worker: int | None = None,
    make_console: MakeConsole | None = None,
) -> None:
    """Serve in this process and event loop until a signal. Refuse to start if messages would not be durable.

    A `worker` with a number leaves the log lines about start and stop to its supervisor.
    """
    check_exposure(settings.host, settings.authenticate)
    supervised = worker is not None
    stack = AsyncExitStack()
    files = settings.tls_files()
    certificate = None if files is None else _certificate(files, supervised=supervised)
    sockets = [listener or listen(settings)[0]]
    async with unready(sockets[0], certificate.for_clients if certificate else None):
        engine = await stack.enter_async_context(open_engine(settings))
    try:
        address = None
        if settings.forward:
            # Workers share the port, but each has its own port for other servers.
            own = listen_for_servers(settings, sockets[0], worker or 0)
            sockets.append(own)
            address = f"{advertised_host(settings.host, settings.advertise_host)}:{own.getsockname()[1]}"
        app, drain = await _app(engine, settings, address, certificate, supervised=supervised)
        if make_console is not None and settings.console:
            app.console = make_console(app)
        server = _Server(_config(app, settings), drain, settings, certificate, supervised=supervised)
        # Any worker reports the groups of all workers of the server.
        if settings.metrics_listen is not None and app.metrics_port is not None and not worker:
            server.serve_metrics(listen_for_metrics(settings.metrics_listen), _config(app.metrics_port, settings))
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


def _certificate(files: TlsFiles, *, supervised: bool) -> ServerCertificate:
    try:
        return ServerCertificate(files)
    except ConfigurationError as error:
        if not supervised:
            raise
        # The supervisor could use the files, so they are being replaced. The worker is started again, and the
        # others keep serving.
        raise Unavailable(error.detail) from None


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


async def _app(
    engine: Engine,
    settings: ServerSettings,
    address: str | None,
    certificate: ServerCertificate | None,
    supervised: bool,
) -> tuple[App, Drain]:
    weak = await check_durability(engine, settings.allow_not_durable)
    if weak and not supervised:
        log_not_durable(weak)
    if failpoints.armed:
        points = sorted(failpoints.armed)
        log_event(_log, logging.WARNING, "failpoints_armed", f"Fail points armed: {', '.join(points)}", points=points)
    everyone = None if settings.authenticate else await engine.catalog.scope_create("default", "default")
    drain = Drain()
    health = HealthSource(engine, drain, weak)
    app = create_app(
        engine, settings, drain=drain, health=health, everyone=everyone, address=address, certificate=certificate
    )
    return app, drain


def _work(
    open_engine: OpenEngine,
    settings: ServerSettings,
    make_console: MakeConsole | None,
    worker: int,
    listener: socket.socket,
) -> None:
    """Run a worker process from its start to its end."""
    configure_logging(settings.log_level, settings.log_format, worker=worker)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(open_engine, settings, listener, worker=worker, make_console=make_console))
    except (ConfigurationError, Unavailable) as error:
        message = f"The worker cannot serve: {error.detail}"
        log_event(_log, logging.ERROR, "worker_not_serving", message, code=error.code, reason=error.detail)
        sys.exit(EXIT_CONFIGURATION if isinstance(error, ConfigurationError) else EXIT_UNAVAILABLE)


def _config(app: AsgiApp, settings: ServerSettings) -> uvicorn.Config:
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

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Drain,
        settings: ServerSettings,
        certificate: ServerCertificate | None = None,
        *,
        supervised: bool,
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._settings = settings
        self._certificate = certificate
        self._supervised = supervised
        self._lame_duck_seconds = min(LAME_DUCK_SECONDS, settings.drain_seconds * 0.1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._metrics: tuple[socket.socket, uvicorn.Config] | None = None

    def serve_metrics(self, listener: socket.socket, config: uvicorn.Config) -> None:
        """Serve the port for metrics too, from the start on."""
        self._metrics = listener, config

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        assert sockets is not None
        # uvicorn would use one TLS context for all sockets, and give a caller a minute for the handshake.
        await super().startup([])
        certificate = self._certificate
        if certificate is not None:
            self._loading = asyncio.create_task(keep_loaded(certificate))
        await self._listen(sockets[0], certificate.for_clients if certificate else None)
        for own in sockets[1:]:
            needs_grant = certificate is not None and certificate.requires_client_certificates
            await self._listen(own, certificate.for_servers if certificate else None, needs_grant=needs_grant)
        if self._metrics is not None:
            listener, config = self._metrics
            config.load()
            await self._listen(listener, None, config=config)
        if not self._supervised:
            log_start(self._settings, sockets[0])

    async def _listen(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        *,
        needs_grant: bool = False,
        config: uvicorn.Config | None = None,
    ) -> None:
        def connect() -> Protocol:
            return Protocol(config or self.config, self.server_state, self.lifespan.state, needs_grant=needs_grant)

        seconds = HEAD_SECONDS if tls else None
        loop = asyncio.get_running_loop()
        for each in accepting(listener):
            server = await loop.create_server(
                connect, sock=each, ssl=tls, backlog=BACKLOG, ssl_handshake_timeout=seconds
            )
            self.servers.append(server)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._loading is not None:
            self._loading.cancel()
        await super().shutdown(sockets)

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
