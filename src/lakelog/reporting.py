"""Structured log lines: each has a stable event name, a sentence for people, and fields for programs.

Lines go to the standard library's loggers. The server renders them as JSON or for a terminal. In other processes, the
application's handlers print the sentence. The callers decide what to log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

Field = str | int | float | bool | None | list[str] | dict[str, str]

SUMMARY_SECONDS = 30.0
FLAP_SECONDS = 1.0
_MAX_KINDS = 20

OnGroupCreated = Callable[[str], None]
_on_group_created: ContextVar[OnGroupCreated | None] = ContextVar("on_group_created", default=None)


@contextmanager
def hear_created_groups(on_created: OnGroupCreated) -> Iterator[None]:
    """Call the function with the name of each group that is created within the block.

    The audit log needs it: the engine creates a group with its first consume or join, and only the server knows the
    caller.
    """
    token = _on_group_created.set(on_created)
    try:
        yield
    finally:
        _on_group_created.reset(token)


def report_created_group(name: str) -> None:
    """Report that the current call created a group."""
    if (on_created := _on_group_created.get()) is not None:
        on_created(name)


def log_event(
    logger: logging.Logger, level: int, event: str, message: str, error: BaseException | None = None, /, **fields: Field
) -> None:
    """Log one line: a stable `event` name, a complete sentence, and `fields` that repeat its parts.

    `error` adds a traceback.
    """
    if logger.isEnabledFor(level):
        # Passed as an argument, because the sentence may contain a percent sign.
        logger.log(level, "%s", message, exc_info=error, extra={"event": event, "fields": fields}, stacklevel=2)


@dataclass(slots=True)
class _Kind:
    """Failures with the same reason."""

    logged_at: float
    count: int = 0
    """Failures since the last line."""


class FailureLog:
    """Logs the failures of one service without repeating lines.

    The first failure of a kind is logged immediately. After that, one line per 30 s reports the number of failures.
    `recovered` adds one line with the duration of the outage. A service that fails and recovers within a second is
    flapping: its lines are limited in the same way.
    """

    def __init__(
        self,
        subject: str,
        event: str,
        logger: logging.Logger,
        *,
        fields: Mapping[str, Field] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Log lines that begin with `subject`, as the events `{event}_failed` and `{event}_recovered`."""
        self._subject = subject
        self._fields = dict(fields or {})
        self._event = event
        self._logger = logger
        self._now = now
        self._kinds: dict[str, _Kind] = {}
        self.since: float | None = None
        """When the current outage began; None if there is none."""
        self._failures = 0
        self._is_announced = False

    def failed(
        self, reason: str, *, kind: str = "", level: int = logging.WARNING, error: BaseException | None = None
    ) -> None:
        """Count a failure. Failures of the same kind are summarized together; by default, the reason is the kind."""
        now = self._now()
        if self.since is None:
            self.since, self._failures = now, 0
        self._failures += 1
        known = self._kinds.get(kind or reason)
        if known is None:
            if len(self._kinds) >= _MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[kind or reason] = _Kind(now)
            self._log(level, f"{self._subject}: {reason}", error, reason=reason, failures=1)
            return
        known.count += 1
        seconds = now - known.logged_at
        if seconds >= SUMMARY_SECONDS:
            many = counted(known.count, "failure")
            message = f"{self._subject}: {many} in the last {show_seconds(seconds)}: {reason}"
            self._log(level, message, None, reason=reason, failures=known.count, seconds=round(seconds, 1))
            known.logged_at, known.count = now, 0

    def recovered(self) -> None:
        """End the current outage, if there is one."""
        if self.since is None:
            return
        seconds = self._now() - self.since
        self.since = None
        if self._is_announced:
            many = counted(self._failures, "failure")
            # At the level of the failure: an operator who sees the failure must see the recovery.
            log_event(
                self._logger,
                logging.WARNING,
                f"{self._event}_recovered",
                f"{self._subject}: available again after {show_seconds(seconds)} ({many})",
                **self._fields,
                failures=self._failures,
                seconds=round(seconds, 1),
            )
        self._is_announced = False
        if seconds >= FLAP_SECONDS:
            self._kinds.clear()

    def _log(
        self, level: int, message: str, error: BaseException | None, *, reason: str, **fields: int | float
    ) -> None:
        self._is_announced = True
        event = f"{self._event}_failed"
        log_event(self._logger, level, event, message, error, **self._fields, reason=reason, **fields)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 failure`, `3 failures`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def show_seconds(seconds: float) -> str:
    """Return a duration for people: `0.4 s`, `42 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
