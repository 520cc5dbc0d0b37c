"""Infrastructure of the client's acceptance tests: a server in a thread, and a URL for each transport."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

import uvicorn

from lakelog.engine import Engine, EngineSettings
from lakelog.maintenance.scheduled_deliverer import ScheduledDeliverer
from lakelog.server.app import create_app
from lakelog.server.settings import ServerSettings
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import DEFAULT_CELL
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

TRANSPORTS = ("memory", "postgresql", "http")


class ThreadServer:
    """A server over a memory store, in a thread. It can be stopped and started again with its messages."""

    def __init__(self, object_store: str | None = None) -> None:
        self.port = free_port()
        self._settings = EngineSettings(object_store=object_store)
        self._stores = (MemoryCatalog(), MemoryStore())
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def catalog(self) -> MemoryCatalog:
        return self._stores[0]

    @property
    def store(self) -> MemoryStore:
        return self._stores[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> ThreadServer:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="server", daemon=True)
        self._thread.start()
        eventually(lambda: self._server is not None and self._server.started, what="the server listens")
        return self

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            self._thread.join(10)
            assert not self._thread.is_alive()
        self._server = self._thread = None

    def __enter__(self) -> ThreadServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def _serve(self) -> None:
        catalog, store = self._stores
        engine = Engine(catalog, {DEFAULT_CELL: store}, self._settings)
        await engine.start()
        everyone = await catalog.scope_create("default", "default")
        app = create_app(engine, ServerSettings(authenticate=False), everyone=everyone)
        config = uvicorn.Config(app, port=self.port, log_level="critical", http="httptools", access_log=False)
        self._server = uvicorn.Server(config)
        server = self._server
        deliverer = ScheduledDeliverer(engine)
        deliverer.start()
        await server.serve()
        await deliverer.stop()
        # As when a process dies: clients see a reset, and nothing is left for the garbage collector.
        for connection in list(server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]
        await asyncio.sleep(0)
        await engine.close()
