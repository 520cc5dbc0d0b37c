"""The fingerprint of a failure: failures with the same one have the same cause, as far as their texts tell.

It consists of the type of the error, its text without what differs from message to message, and the place in the
application's code without its line.
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
# In this order: a URL contains hosts, and a host contains numbers. `{1,253}` bounds the work for hostile texts.
_VARYING = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"`<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|`[^`]*`"), "<text>"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+\b"), "<email>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?::[0-9]{1,5})?\b"), "<host>"),
    (re.compile(r"\b(?=[a-z0-9-]*[a-z])[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+(?::[0-9]{1,5})?\b"), "<host>"),
    (re.compile(r"\b(?=[\w-]{0,80}[0-9])(?=[\w-]{0,80}[A-Za-z_])[\w-]{1,120}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{16,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"[0-9]+(?:[.,:][0-9]+)*"), "<n>"),
)
_FRAME = re.compile(r'^\s*File "([^"]+)", line [0-9]+, in (.+)$', re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]|^<frozen")
_BEGIN = "Traceback (most recent call last):"


class Fingerprint(NamedTuple):
    """The common part of failures with the same cause. `str` returns 12 characters that identify it.

    Attributes:
        kind: The type of the error, such as `ValueError`; an empty text if the reason names none.
        pattern: The reason with `<n>`, `<id>`, `<text>`, `<url>`, `<host>`, `<email>` and `<uuid>` in place of what
            differs.
        frame: The innermost frame of the application, such as `shop/billing.py in charge`; None without a traceback.
    """

    kind: str
    pattern: str
    frame: str | None

    def __str__(self) -> str:
        return show_fingerprint(self.number)

    @property
    def number(self) -> int:
        """The same as a number of 48 bits, which is stored."""
        text = "\0".join((self.kind, self.pattern, self.frame or ""))
        return int(hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS], 16)


def show_fingerprint(number: int) -> str:
    """Return the 12 characters of a stored fingerprint."""
    return f"{number:0{_DIGITS}x}"


def parse_fingerprint(text: str) -> int:
    """Return the number of a fingerprint whose form was checked."""
    return int(text, 16)


def fingerprint_of(reason: str, traceback: str | None = None) -> Fingerprint:
    """Return the fingerprint of a failure with this reason, such as `ValueError: no order 42`, and this traceback."""
    found = _TYPE.match(reason)
    kind = found[0] if found else ""
    return Fingerprint(kind, _pattern(kind, reason), _frame(traceback) if traceback else None)


def _pattern(kind: str, reason: str) -> str:
    text = " ".join(reason[len(kind) : _MAX_READ].split())
    for varying, mark in _VARYING:
        text = varying.sub(mark, text)
    text = kind + text
    return text if len(text) <= MAX_PATTERN else f"{text[: MAX_PATTERN - 1]}…"


def _frame(traceback: str) -> str | None:
    """Return the last frame that is not of a library, without its line, which changes with every edit above it."""
    # The last part belongs to the error itself, and the parts before it to what caused it.
    frames = _FRAME.findall(traceback.rpartition(_BEGIN)[2]) or _FRAME.findall(traceback)
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    if not frames:
        return None
    path, function = (own or frames)[-1]
    # Without the folders above: they have the names of hosts, users and releases.
    short = "/".join(re.split(r"[/\\]", path)[-2:])
    return f"{short} in {function.strip()}"
