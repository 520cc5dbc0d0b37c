"""Computes how many messages a worker leases ahead, so that handlers do not wait for the server.

It only decides a number. `worker` takes the leases, and the waiting messages are in `lease_runner`.
"""

from __future__ import annotations

from lakelog.client.worker.options import SubscriptionOptions

AHEAD_SECONDS = 0.1
PATIENCE_SECONDS = 0.5
_WEIGHT = 0.3
"""The weight of the newest handler in the average."""


class Prefetch:
    """The number of messages to lease ahead. By default the number handled in `AHEAD_SECONDS`, at most `batch_size`.

    It starts at 0, grows over a few dozen fast handlers, and shrinks with the first slow one, so that a worker never
    keeps messages that other workers could handle now.
    """

    def __init__(self, options: SubscriptionOptions) -> None:
        # A batch handler is given messages for whole batches, and more ahead only on request.
        self.is_automatic = options.prefetch is None and options.max_in_flight is None and options.batch is None
        self._batch_size = options.batch_size
        self._concurrency = options.concurrency
        self._slots = options.concurrency * (options.batch or 1)
        self._most = options.max_in_flight
        self._seconds = 1.0
        """The average time of a handler. It follows slower handlers immediately, and faster handlers gradually."""
        self.size = 0
        if not self.is_automatic:
            self.size = options.prefetch if options.prefetch is not None else options.max_in_flight or 0
        if options.batch is not None:
            self.size = options.prefetch or 0

    def __str__(self) -> str:
        ahead = "automatic" if self.is_automatic else max(0, self.capacity - self._slots)
        return f"concurrency {self._concurrency}, prefetch {ahead}"

    @property
    def capacity(self) -> int:
        """The number of messages that the worker may hold: waiting for a slot, running, or being acked."""
        wanted = self._slots + self.size
        return wanted if self._most is None else min(wanted, self._most)

    @property
    def patience_seconds(self) -> float | None:
        """How long a message may wait for a slot before it goes back to the group."""
        return PATIENCE_SECONDS if self.is_automatic else None

    def handled(self, seconds: float) -> None:
        """Adjust to a handler that took that many seconds."""
        self._seconds = max(seconds, (1 - _WEIGHT) * self._seconds + _WEIGHT * seconds)
        self._resize()

    def stalled(self) -> None:
        """Lease nothing ahead: no handler has freed a slot within the patience."""
        self._seconds = max(self._seconds, 2 * AHEAD_SECONDS * self._concurrency)
        self._resize()

    def _resize(self) -> None:
        if self.is_automatic:
            self.size = min(self._batch_size, int(self._concurrency * AHEAD_SECONDS / max(self._seconds, 1e-6)))
