"""Counts the connections of a process, in total and per address. A connection above a limit is refused."""

from __future__ import annotations

import logging
import resource

from lakelog.reporting import FailureLog

OTHER_FILES = 256
"""The number of file descriptors that are reserved for databases, files and other servers."""

_log = logging.getLogger(__name__)


class Connections:
    """Counts open connections against the limits."""

    def __init__(self, limit: int, limit_per_address: int) -> None:
        """Create the counts. A limit that the operating system does not allow is lowered."""
        files = raise_file_limit()
        self._limit = min(limit, max(files // 2, files - OTHER_FILES))
        self._limit_per_address = limit_per_address
        self._by_address: dict[str, int] = {}
        self.count = 0
        self._refusals = FailureLog("Connections", "connections", _log)

    def open(self, address: str) -> str | None:
        """Count a connection from this address. Return why it is refused; None if it is accepted."""
        its = self._by_address.get(address, 0)
        if self.count >= self._limit:
            refusal = f"The server has {self._limit} connections, which is its limit. Retry shortly."
        elif its >= self._limit_per_address:
            refusal = f"Your address has {its} connections, which is the limit. Close some of them."
        else:
            self.count += 1
            self._by_address[address] = its + 1
            return None
        self._refusals.failed(f"{refusal} The address is {address}.", kind=address)
        return refusal

    def close(self, address: str) -> None:
        """Count the end of an accepted connection."""
        self.count -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


def raise_file_limit() -> int:
    """Raise the number of files that this process may open to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 30
