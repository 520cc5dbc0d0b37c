"""Log lines about failed attempts: one line each, with the handler's traceback from the user's code on.

`HandlerFailureLog` summarises many failures. `completion` decides what happens to a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable

from lakelog.client import processes
from lakelog.client.publishing.codec import JSON
from lakelog.client.worker.leased_message import LeasedMessage
from lakelog.client.worker.tracebacks import kind_of, user_exc_info
from lakelog.model.lease import Answered, Verb

log = processes.log

WINDOW_SECONDS = 10.0
LINES = 20
"""The limit for lines about errors that were logged before, per level and window."""
_DISTINCT = 40
"""The limit for distinct errors in a window."""
_REASON_CHARS = 300
_KEY_CHARS = 40


class HandlerFailureLog:
    """Logs the failed attempts of one subscription to the logger `lakelog`.

    Each distinct error is logged with its traceback once in ten seconds, and as a single line after that. After 20
    single lines, the failures of the remaining seconds are counted and logged as a number.
    """

    def __init__(self, topic: str, group: str) -> None:
        self.keeps_dead_letters = True
        """True if the group keeps a message as a dead letter after its last attempt; False if it discards it."""
        self._group = group
        self._name = f"{topic}/{group}"
        self._shown: set[tuple[int, Hashable]] = set()
        self._traced: set[Hashable] = set()
        self._lines: Counter[int] = Counter()
        self._left_out: Counter[int] = Counter()
        self._window: asyncio.TimerHandle | None = None

    def failed(
        self, leased: LeasedMessage, verb: Verb, answered: Answered, error: BaseException | None, others: int = 0
    ) -> None:
        """Log an attempt that ended with a nack or a fail: when the next one is due, or that it was the last.

        With `others`, the line is also about that many other messages of the same batch.
        """
        reason = leased.reason or f"{verb} without a reason"
        limit = "" if answered.max_attempts is None else f" of {answered.max_attempts}"
        attempt = f"attempt {leased.failures + 1}{limit} failed"
        if not answered.dead:
            wait_ms = answered.retry_in_ms
            then = "" if wait_ms is None else f", next attempt in {wait_ms / 1000:.1f} s"
            also = _and_others(others)
            self.write(logging.WARNING, leased, f"{attempt}{also}{then}", reason, error)
            return
        if verb is Verb.FAIL:
            attempt += " for good"
        then = f"dead letter (lakelog dead show {self._group} {leased.message.id})"
        if not self.keeps_dead_letters:
            then = "discarded"
        self.write(logging.ERROR, leased, f"{attempt}, {then}", reason, error)

    def write(
        self, level: int, leased: LeasedMessage, what: str, reason: str, error: BaseException | None = None
    ) -> None:
        """Log a line about the message, unless too many similar lines were logged."""
        kind = kind_of(error) if error is not None else reason
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end_window)
        if (level, kind) not in self._shown and len(self._shown) < _DISTINCT:
            self._shown.add((level, kind))
        elif self._lines[level] < LINES:
            self._lines[level] += 1
        else:
            self._left_out[level] += 1
            return
        exc_info = user_exc_info(error) if error is not None and kind not in self._traced else None
        self._traced.add(kind)
        log.log(level, "%s: %s: %s", self.where(leased), what, one_line(reason), exc_info=exc_info)

    def where(self, leased: LeasedMessage, others: int = 0) -> str:
        """Return the text that names the message in log lines, and the number of others of its batch."""
        message = leased.message
        more = [] if message.key is None else [f"key {one_line(message.key.decode(errors='replace'), _KEY_CHARS)}"]
        if message.content_type not in (None, JSON):
            # Handlers that expect JSON fail with errors that do not mention it.
            more.append(one_line(message.content_type, _KEY_CHARS))
        shown = f" ({', '.join(more)})" if more else ""
        return f"{self._name} message {message.partition}:{message.offset}{shown}{_and_others(others)}"

    def close(self) -> None:
        """Log how many lines were left out."""
        if self._window is not None:
            self._window.cancel()
            self._end_window()

    def _end_window(self) -> None:
        self._window = None
        names = {logging.WARNING: "failed attempts", logging.ERROR: "dead letters"}
        counts = [f"{self._left_out[level]:,} more {name}" for level, name in names.items() if self._left_out[level]]
        if counts:
            log.log(max(self._left_out), "%s: %s in %g s", self._name, " and ".join(counts), WINDOW_SECONDS)
        for each in (self._shown, self._traced, self._lines, self._left_out):
            each.clear()


def _and_others(count: int) -> str:
    return f", with {count:,} more of its batch" if count else ""


def one_line(text: str, chars: int = _REASON_CHARS) -> str:
    """Return the text on one line, clipped, without terminal control characters."""
    first = " ".join(text.split())
    clipped = first if len(first) <= chars else f"{first[:chars]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in clipped)
