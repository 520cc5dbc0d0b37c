"""The homes of groups among the servers of a client's URL. It makes no calls.

A call for a group that reaches another server is forwarded to the home. Servers name the home in their responses. A
client whose URL names several servers calls the home directly. It never calls an address that its URL does not name, so
the token goes nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

HomeKey = tuple[str, str, str]
"""A topic, a group, and an owner."""

_HOME, _SERVER = "lakelog-home", "lakelog-server"
_REMEMBERED = 10_000
_LOOK_SECONDS = 60.0
"""How long a server is not called only to learn its name."""


class HomeServers:
    """The home of each (topic, group, owner), as an index of the client's servers."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Create it for `count` servers. `clock` returns seconds."""
        self._count = count
        self._clock = clock
        self._homes: dict[HomeKey, str] = {}
        self._indexes: dict[str, int] = {}
        self._called: dict[int, float] = {}

    def choose(self, key: HomeKey, current: int) -> int:
        """Return the server to call: the home; a server whose name is unknown while the home is; else `current`."""
        home = self._homes.get(key)
        if home is None:
            return current
        if home in self._indexes:
            return self._indexes[home]
        now = self._clock()
        others = ((current + step) % self._count for step in range(1, self._count))
        return next((each for each in others if now - self._called.get(each, -_LOOK_SECONDS) >= _LOOK_SECONDS), current)

    def learn(self, key: HomeKey, index: int, headers: Mapping[str, str]) -> None:
        """Remember the home that a response of a server names. Errors and servers of older versions name none."""
        self._called[index] = self._clock()
        if self._count == 1 or _HOME not in headers or _SERVER not in headers:
            return
        if len(self._homes) >= _REMEMBERED:
            self._homes.clear()
        if self._indexes.get(headers[_SERVER]) != index:
            # The server at this address may have been restarted, with a new name.
            self._indexes = {name: each for name, each in self._indexes.items() if each != index}
            self._indexes[headers[_SERVER]] = index
        self._homes[key] = headers[_HOME]

    def forget(self, key: HomeKey, index: int) -> None:
        """Let the next call go to the current server, because this one failed."""
        self._called[index] = self._clock()
        self._homes.pop(key, None)
