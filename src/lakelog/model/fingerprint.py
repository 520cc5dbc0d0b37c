"""The fingerprint of a failure: failures with the same one have the same cause, as far as their texts tell.

It consists of the reason without what differs from message to message, and of the place in the application's code.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

MAX_PATTERN = 200
_MAX_READ = 2000
"""Characters of a reason that are read: what follows is detail."""
_DIGITS = 12
_TYPE = re.compile(r"[A-Za-z_][\w.]{0,119}(?=: |$)", re.ASCII)
# In this order: a URL contains numbers, and so does a UUID.
_VARYING = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|`[^`]*`"), "<text>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{12,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"[0-9]+(?:[.,:][0-9]+)*"), "<n>"),
)
_FRAME = re.compile(r'^[ \t]*File "([^"\n]{1,1000})", line [0-9]+, in ([\w.<>]{1,120})$', re.MULTILINE)
# A message that looks like a traceback must not become a sentence that readers trust.
_ODD = re.compile(r"[^\w.<>-]")
_MAX_PART = 60
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]|^<frozen")


class Fingerprint(NamedTuple):
    """The common parts of failures with the same cause. `str` returns 12 characters that identify it.

    Attributes:
        kind: The type of the error, such as `ValueError`; an empty text if the reason names none.
        pattern: The reason with `<n>`, `<text>`, `<url>`, `<uuid>` and `<hex>` in place of what differs.
        frame: The innermost frame of the application, such as `shop/billing.py in charge`; None without a traceback.
    """

    kind: str
    pattern: str
    frame: str | None

    def __str__(self) -> str:
        text = "\0".join((self.kind, self.pattern, self.frame or ""))
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]


def fingerprint_of(reason: str, traceback: str | None = None) -> Fingerprint:
    """Return the fingerprint of a failure with this reason, such as `ValueError: no order 42`, and this traceback."""
    kind = _TYPE.match(reason)
    return Fingerprint(kind[0] if kind else "", _pattern(reason), _frame(traceback) if traceback else None)


def _pattern(reason: str) -> str:
    text = " ".join(reason[:_MAX_READ].split())
    for varying, mark in _VARYING:
        text = varying.sub(mark, text)
    return text if len(text) <= MAX_PATTERN else f"{text[: MAX_PATTERN - 1]}…"


def _frame(traceback: str) -> str | None:
    """Return the last frame that is not of a library, without its line, which changes with every edit above it."""
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    if not frames:
        return None
    path, function = (own or frames)[-1]
    short = "/".join(_ODD.sub("_", part)[-_MAX_PART:] for part in re.split(r"[/\\]", path)[-2:])
    return f"{short} in {function}"
