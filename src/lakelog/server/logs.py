"""Structured logs on stderr, one object a line; what other libraries log goes the same way. It decides no levels."""

from __future__ import annotations

import logging
import re
import secrets
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import structlog

_SANE = re.compile(rb"[A-Za-z0-9._~-]{1,128}")

_SHARED: list[Any] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
# Without local variables: they hold callers' tokens and messages.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def configure_logging(level: str, log_format: str) -> None:
    """Routes structlog and the standard library's logging to stderr."""
    renderer: Any = structlog.processors.JSONRenderer()
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *([_TRACEBACKS] if log_format == "json" else []),
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It says at its info level what we say ourselves, and warns about every malformed request.
    logging.getLogger("uvicorn.error").setLevel(max(logging.ERROR, root.level))


class RequestIds:
    """The caller's own id if it is sane, or a new one: a random prefix per process and a number."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6).encode()
        self._numbers: Iterator[int] = count(1)

    def take(self, given: bytes | None) -> bytes:
        if given is not None and _SANE.fullmatch(given):
            return given
        return b"%s-%x" % (self._prefix, next(self._numbers))
