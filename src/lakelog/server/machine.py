"""This machine as other servers see it: its identity, and the address at which they reach it."""

from __future__ import annotations

import contextlib
import os
import socket
from functools import cache
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path

from lakelog.server.metrics import MULTIPROCESS


@cache
def machine_id() -> str:
    """Return eight characters that differ between machines, and between containers with networks of their own."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(str(Path("/proc/self/ns/net").stat().st_ino))
    return blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


def server_mark() -> str:
    """Return eight characters that the worker processes of one server have in common, and other servers have not."""
    shared = os.environ.get(MULTIPROCESS) or f"process {os.getpid()}"
    return blake2b(shared.encode(), digest_size=4).hexdigest()


def advertised_host(host: str, given: str | None) -> str:
    """Return the address for other servers: the configured one, the listening one, or that of the machine."""
    if given:
        return given
    with contextlib.suppress(ValueError):
        if not ip_address(host.strip("[]")).is_unspecified:
            return host
        return _own_address()
    return host or _own_address()


def _own_address() -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: this only finds the address that would be used.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return socket.gethostname()
