"""The sockets of a server process: the port for callers, which workers share, and its own port for other servers."""

from __future__ import annotations

import contextlib
import socket
from ipaddress import ip_address

from lakelog.errors import ConfigurationError
from lakelog.server.settings import ServerSettings

BACKLOG = 2048
ACCEPTED_PER_TURN = 16
"""The number of connections that a socket accepts in one turn of the event loop."""
INTERNAL_PORT = 8480
"""The default port for calls of other servers, unless the server is bound to loopback."""


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


def listen_for_servers(settings: ServerSettings, shared: socket.socket, worker: int = 0) -> socket.socket:
    """Return the worker's own socket for calls of other servers, on the interface of the port for callers."""
    host = shared.getsockname()[0]
    port = settings.internal_port
    if port is None:
        port = 0 if _is_loopback(host) else INTERNAL_PORT
    port += worker if port else 0
    try:
        return _socket(shared.family, (host, port), shared=False)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"Cannot listen on {host} port {port} for other servers: {getattr(error, 'strerror', None) or error}. "
            "Choose another with --internal-port, or set LAKELOG_FORWARD=false if this is the only server."
        ) from error


def accepting(listener: socket.socket) -> list[socket.socket]:
    """Return the sockets that accept its connections: several descriptors of the listener.

    The event loop accepts one connection of each descriptor in a turn. While its turns are long, connections would wait
    for seconds behind those of a caller that opens hundreds in a second.
    """
    return [listener, *(listener.dup() for _ in range(ACCEPTED_PER_TURN - 1))]


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def _socket(family: int, address: tuple[str, int], *, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
