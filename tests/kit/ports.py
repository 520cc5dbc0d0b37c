"""Free ports on loopback for servers that tests start. It reserves nothing: the server binds the port itself."""

from __future__ import annotations

import random
import socket

# Below the range that the kernel hands to outgoing connections, so that nobody takes a port while its server is down.
_FIRST, _LAST = 20_000, 32_000
_random = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that this process was not given before."""
    for _ in range(1000):
        port = _random.randint(_FIRST, _LAST)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port between {_FIRST} and {_LAST}; end the processes that listen there")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
