"""Free ports on loopback for servers that tests start. The server binds the port itself, perhaps seconds later."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the range that the kernel uses for outgoing connections, so that no process takes a port while its server is
# down.
_FIRST, _LAST = 20_000, 32_000
_random = random.SystemRandom()
_reserved: dict[int, int] = {}
"""The open lock file of each port that this process was given: the kernel unlocks it when the process ends."""


def free_port() -> int:
    """Return a free port that no other process of this kit gets before this process ends."""
    for _ in range(1000):
        port = _random.randint(_FIRST, _LAST)
        if _reserve(port):
            if _is_free(port):
                return port
            os.close(_reserved.pop(port))
    raise RuntimeError(f"no free port between {_FIRST} and {_LAST}; end the processes that listen there")


def _reserve(port: int) -> bool:
    """Lock the port's file. Test processes run side by side, and a JVM takes seconds to bind what it was given."""
    if port in _reserved:
        return False
    folder = Path(tempfile.gettempdir(), f"lakelog-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _reserved[port] = lock
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
