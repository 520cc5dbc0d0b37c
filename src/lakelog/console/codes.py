"""One-time codes in links to the console, which are exchanged for a token within a minute."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

CODE_SECONDS = 60.0
"""How long a code is valid."""


class LoginCodes:
    """The codes of one process. Each works once."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Create an empty set of codes.

        Args:
            now: The clock, in seconds.
        """
        self._now = now
        self._tokens: dict[str, tuple[str, float]] = {}

    def issue(self, token: str) -> str:
        """Return a new code for a token."""
        code = secrets.token_urlsafe(24)
        self._tokens[code] = (token, self._now() + CODE_SECONDS)
        return code

    def take(self, code: str) -> str | None:
        """Return the token of a code, and forget the code. Return None if the code is unknown or too old."""
        token, until = self._tokens.pop(code, ("", 0.0))
        return token if token and self._now() < until else None
