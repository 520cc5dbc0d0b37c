"""Finds the token of a session, to show the viewer's rights. Found tokens are cached for a short time.

The cache only decides which buttons a page offers: the server checks the token of every call.
"""

from __future__ import annotations

import time
from hashlib import sha256

from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.console.page import Viewer

_SECONDS = 20.0
_SIZE = 1000


class Viewers:
    """The viewers of this process."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Viewer, float]] = {}

    async def find(self, log: AsyncLakelog, secret: str | None) -> Viewer:
        """Return the viewer with this token. Raise `NotAuthenticated` if the server does not accept it."""
        hashed = sha256((secret or "").encode()).digest()
        viewer, until = self._known.get(hashed, (None, 0.0))
        if viewer is not None and time.monotonic() < until:
            return viewer
        viewer = Viewer(token=await log.tokens.current())
        if len(self._known) >= _SIZE:
            self._known.clear()
        self._known[hashed] = (viewer, time.monotonic() + _SECONDS)
        return viewer

    def forget(self, secret: str | None) -> None:
        """Forget a token, because it was revoked."""
        self._known.pop(sha256((secret or "").encode()).digest(), None)
