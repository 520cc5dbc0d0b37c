"""Plain HTTP calls with a timeout. A caller uses one server until it fails, then the next, and never retries.

Outcomes are those of a history: ok, a definite refusal, or unknown.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from prove.history.lease_lines import is_refusal
from prove.history.lines import Told
from prove.history.recorder import HistoryRecorder

TOKEN = "LAKELOG_TOKEN"
"""Environment variable with the access token of client processes."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, kw_only=True)
class CallReply:
    """The result of a call: its outcome, the decoded body, and the problem code or the error."""

    outcome: Told
    data: Any = None
    reason: str = ""
    code: str = ""


def headers(token: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}


class HttpCaller:
    """Makes calls over one connection at a time, through the proxies of the servers."""

    def __init__(
        self,
        ports: Sequence[int],
        timeout: float,
        recorder: HistoryRecorder | None = None,
        *,
        first: int = 0,
        token: str | None = None,
    ) -> None:
        """Create a caller. `token` defaults to that of the environment."""
        self._ports = [*ports[first % len(ports) :], *ports[: first % len(ports)]]
        self._timeout = timeout
        self._recorder = recorder
        self._headers = headers(token or os.environ.get(TOKEN, ""))
        self._connection: http.client.HTTPConnection | None = None
        self._dice = random.Random(first)
        self._move_at = 0.0
        self._failures = 0

    def settle(self) -> None:
        """Pause if the last calls failed, so that servers can start. Call it before a call is recorded."""
        if self._failures:
            time.sleep(min(0.5, 0.02 * 2**self._failures) * self._dice.uniform(0.5, 1.0))

    def call(self, method: str, path: str, body: Any = None, *, more: float = 0.0) -> CallReply:
        """Make a call. `more` is the additional time in seconds that a long poll may take."""
        self.choose()
        try:
            connection = self._connected(self._timeout + more)
            connection.request(method, path, None if body is None else _encode(body), self._headers)
            answer = connection.getresponse()
            data = answer.read()
            decoded = _decode(data) if data else None
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            self.elsewhere()
            return CallReply(outcome="info", reason=repr(error)[:200])
        return self._judged(answer, data, decoded)

    def choose(self) -> int:
        """Return the port of the server for the next call."""
        if time.monotonic() > self._move_at:
            # Otherwise all clients would soon use the one server without recent faults.
            self._dice.shuffle(self._ports)
            self.close()
            self._move_at = time.monotonic() + self._dice.uniform(1.0, 4.0)
        return self._ports[0]

    def avoid(self, port: int) -> None:
        """Use a server other than this one for the next call."""
        if self.choose() == port:
            self._go_on()

    def elsewhere(self) -> None:
        """Use the next server for the next call."""
        self._failures = min(self._failures + 1, 8)
        self._go_on()

    def _go_on(self) -> None:
        self.close()
        self._ports.append(self._ports.pop(0))

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def _connected(self, timeout: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=timeout)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        self._connection.timeout = timeout
        return self._connection

    def _judged(self, answer: http.client.HTTPResponse, data: bytes, decoded: Any) -> CallReply:
        if answer.status < 300:
            self._failures = 0
            return CallReply(outcome="ok", data=decoded)
        reason = f"{answer.status} {data[:200].decode(errors='replace')}"
        code = str(decoded.get("code", "")) if isinstance(decoded, dict) else ""
        if answer.status in (429, 503) and self._recorder is not None:
            self._recorder.sample("overload", int(answer.getheader("Retry-After") is not None))
        if is_refusal(answer.status):
            return CallReply(outcome="fail", data=decoded, reason=reason, code=code)
        self.elsewhere()
        return CallReply(outcome="info", reason=reason, code=code)
