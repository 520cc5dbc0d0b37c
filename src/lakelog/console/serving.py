"""Serves the console in a process of its own."""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

import uvicorn

from lakelog.client.connecting.target import Target
from lakelog.console.app import create_console
from lakelog.console.servers import RemoteServers
from lakelog.errors import ConfigurationError

_BACKLOG = 256
_MAX_CONNECTIONS = 500
_STOP_SECONDS = 5


class TlsFiles(NamedTuple):
    """PEM files of the console's certificate and its key."""

    certificate: str
    key: str


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 is a free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another.") from error


def serve(target: Target, listener: socket.socket, files: TlsFiles | None = None) -> None:
    """Serve the console for these servers until SIGTERM or SIGINT.

    Args:
        target: The servers.
        listener: The socket to listen on.
        files: The certificate. Default: no TLS.
    """
    stopping = asyncio.Event()
    config = uvicorn.Config(
        create_console(RemoteServers(target), stopping=stopping.wait),
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=None if files is None else files.certificate,
        ssl_keyfile=None if files is None else files.key,
    )
    ConsoleServer(config, stopping).run(sockets=[listener])


class ConsoleServer(uvicorn.Server):
    """A server that announces its end, so that streams of events end before it waits for them."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn does, after the announcement."""
        self._stopping.set()
        await super().shutdown(sockets)
