"""The lines that a server logs when it starts: its address, its databases, and dangerous settings."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence

from lakelog.reporting import counted, log_event
from lakelog.server.health import VERSION
from lakelog.server.settings import ServerSettings

_log = logging.getLogger(__name__)


def log_start(settings: ServerSettings, listener: socket.socket) -> None:
    """Log one line with the version, the address and the databases, without passwords."""
    url = _url(listener, "https" if settings.tls_certificate else "http")
    database = _place(settings.database_url)
    cells = {name: _place(each) for name, each in settings.cells.items()}
    parts = [f"database {database}"]
    parts += [f"cell {name} {place}" for name, place in cells.items()]
    parts.append(f"object store {settings.object_store or 'none'}")
    parts.append(f"authentication {'on' if settings.authenticate else 'off'}")
    if settings.workers > 1:
        parts.append(counted(settings.workers, "worker"))
    log_event(
        _log,
        logging.INFO,
        "server_started",
        f"Lakelog {VERSION} listens on {url} ({', '.join(parts)}).",
        version=VERSION,
        url=url,
        database=database,
        cells=cells,
        object_store=settings.object_store,
        authentication=settings.authenticate,
        workers=settings.workers,
        pid=os.getpid(),
    )


def log_not_durable(weak: Sequence[str]) -> None:
    """Log which settings endanger acknowledged messages."""
    message = f"NOT DURABLE: acknowledged messages can be lost in a crash ({'; '.join(weak)})."
    log_event(_log, logging.WARNING, "not_durable", message, settings=list(weak))


def log_no_authentication() -> None:
    """Log that the server requires no tokens."""
    message = "No authentication: anyone on this machine can read, publish and manage."
    log_event(_log, logging.WARNING, "no_authentication", message)


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{scheme}://{host}:{port}"


def _place(url: str | None) -> str:
    from lakelog.storage.postgres.address import address_of

    return str(address_of(url)) if url else "none"
