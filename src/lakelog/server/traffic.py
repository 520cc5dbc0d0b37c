"""All calls of this process on both paths: limits their number, gives them ids, and counts and logs them."""

from __future__ import annotations

import logging
import time

from lakelog.engine.fairness import LoopTurns, Shares
from lakelog.errors import LakelogError, first_line
from lakelog.reporting import FailureLog, log_event
from lakelog.server.calls import Response
from lakelog.server.logs import RequestIds
from lakelog.server.metrics import Metrics
from lakelog.server.problems import error_response

MAX_IN_FLIGHT = 10_000
"""The largest number of concurrent calls, including long polls: each uses some memory outside of the budget."""

_log = logging.getLogger(__name__)


class Traffic:
    """The traffic of one app."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.ids = RequestIds()
        self.in_flight = 0
        self.shares = Shares()
        """The calls of each environment."""
        self.turns = LoopTurns()
        self._failures = FailureLog("Calls", "calls", _log)
        self._timed = {
            "publish": metrics.publish_seconds,
            "fetch": metrics.fetch_seconds,
            "consume": metrics.consume_seconds,
        }

    def has_room(self, environment: int, others: int) -> bool:
        """Return whether one more call of the environment can be accepted, beside `others` that are in flight."""
        return self.shares.may_take(environment, 1, MAX_IN_FLIGHT - others, MAX_IN_FLIGHT)

    @property
    def is_flooded(self) -> bool:
        """Return whether there are too many calls even to find out whose call this is."""
        return self.in_flight > MAX_IN_FLIGHT + MAX_IN_FLIGHT // 8

    def answered(self, operation: str, status: int, started: float | None) -> None:
        """Count a finished call. `started` is None for a call that waited for messages."""
        self.metrics.answered(operation, status)
        if started is not None and operation in self._timed:
            self._timed[operation].observe(time.perf_counter() - started)

    def failed(self, error: Exception, operation: str, request_id: bytes, *, is_known: bool = True) -> Response:
        """Return the response to a call that failed, and log a failure of the server itself.

        A caller that is not authenticated (`is_known`) gets no details of such a failure.
        """
        answer = error_response(error, request_id, is_known=is_known)
        if answer.status < 500:
            return answer
        request = request_id.decode()
        if not isinstance(error, LakelogError):
            message = f"Call {operation} failed (request {request}): {type(error).__name__}: {first_line(error)}"
            log_event(
                _log, logging.ERROR, "call_failed", message, error, operation=operation, status=500, request_id=request
            )
        elif error.subject.get("unreachable") != "database":
            # Outages of the database have their own log lines.
            self._failures.failed(f"{operation}: {error.detail}", kind=f"{operation} {error.code}")
        return answer
