"""Renders the log on stderr: one JSON object per line for programs, or one plain line for people.

Lines of other libraries are rendered in the same way. The module does not decide what is logged.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

import structlog

_SANE = re.compile(rb"[A-Za-z0-9._~-]{1,128}")

# Without local variables, because they contain tokens and messages.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
_COLOURS = {"warning": "\033[33m", "error": "\033[31m", "critical": "\033[31m"}

Line = MutableMapping[str, Any]


def configure_logging(level: str, log_format: str, *, worker: int | None = None) -> None:
    """Send all log lines of this process to stderr. `worker` is the number of a process that shares its port."""

    def shape(logger: object, name: str, line: Line) -> Line:
        return _shape(line, worker)

    is_json = log_format == "json"
    renderer: Any = structlog.processors.JSONRenderer() if is_json else _Console(sys.stderr.isatty())
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[shape],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _TRACEBACKS if is_json else structlog.processors.format_exc_info,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Its info lines repeat ours, and it warns about every malformed request.
    logging.getLogger("uvicorn.error").setLevel(max(logging.ERROR, root.level))


def _shape(line: Line, worker: int | None) -> Line:
    """Return the fields of a line, in the order in which they are printed."""
    record: logging.LogRecord = line["_record"]
    time_utc = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {
        "timestamp": time_utc.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": getattr(record, "event", "log"),
        "message": line.pop("event"),
        **getattr(record, "fields", {}),
        **({} if worker is None else {"worker": worker}),
        "logger": record.name,
        **line,
    }


class _Console:
    """Return a line such as `20:14:05 warning PostgreSQL at …`, without the fields, which the sentence repeats."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def __call__(self, logger: object, name: str, line: Line) -> str:
        at = datetime.fromisoformat(line["timestamp"]).timestamp()
        level = f"{line['level']:<7}"
        if self._colours and line["level"] in _COLOURS:
            level = f"{_COLOURS[line['level']]}{level}\033[0m"
        worker = f"[worker {line['worker']}] " if "worker" in line else ""
        # A message may quote a caller, who must not control the operator's terminal.
        message = "".join(each if each.isprintable() else " " for each in str(line["message"]))
        trace = f"\n{line['exception']}" if "exception" in line else ""
        return f"{time.strftime('%H:%M:%S', time.localtime(at))} {level} {worker}{message}{trace}"


class RequestIds:
    """Return the caller's request id if it is valid, or a new one: a random prefix per process and a number."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6).encode()
        self._numbers: Iterator[int] = count(1)

    def take(self, given: bytes | None) -> bytes:
        if given is not None and _SANE.fullmatch(given):
            return given
        return b"%s-%x" % (self._prefix, next(self._numbers))
