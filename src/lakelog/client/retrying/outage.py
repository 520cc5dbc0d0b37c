"""Logs that calls fail and are retried: the first failure as a warning, the end of the outage as one line."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakelog.client.processes import log
from lakelog.errors import LakelogError

logger = log.getChild("connection")
"""A logger below `lakelog`, because the command line reports outages itself and disables this one."""


_QUIET_SECONDS = 10.0
"""How long after a warning an unstable connection is not reported again."""


class Outage:
    """Reports outages, as the callers that retry see them. `name` is put before each line."""

    def __init__(self, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._prefix = f"{name}: " if name else ""
        self._clock = clock
        self._since: float | None = None
        self._warned = False
        self._quiet_until = float("-inf")

    def failed(self, error: LakelogError, seconds: float | None = None) -> None:
        """Note a failure that is retried for that many seconds; None means until it succeeds."""
        now = self._clock()
        if self._since is None:
            self._since = now
        if not self._warned and now >= self._quiet_until:
            self._warned = True
            self._quiet_until = now + _QUIET_SECONDS
            limit = "until it succeeds" if seconds is None else f"for up to {seconds:.0f} s"
            logger.warning("%s%s Retrying %s.", self._prefix, error.detail, limit)

    def ended(self) -> None:
        """Note that a call that had failed has succeeded."""
        if self._warned and self._since is not None:
            logger.info("%sCalls succeed again after %.1f s.", self._prefix, self._clock() - self._since)
        self._since, self._warned = None, False

    def given_up(self) -> None:
        """Note that the caller gets the error. If the next call fails as well, that is a new outage."""
        self._since, self._warned, self._quiet_until = None, False, float("-inf")
