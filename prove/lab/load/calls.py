"""Plain HTTP with a limit of time: one server is used until it fails, then the next. It repeats nothing by itself.

What a caller is told is what a history has: ok, a definite refusal of ours, or unknown.
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
"""Where processes of the clients have it from."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, kw_only=True)
class CallReply:
    """What became of a call: its outcome, the decoded body, and the problem's code or what broke."""

    outcome: Told
    data: Any = None
    reason: str = ""
    code: str = ""


def headers(token: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}


class HttpCaller:
    """One connection at a time, to the wires in front of the servers."""

    def __init__(
        self,
        ports: Sequence[int],
        timeout: float,
        recorder: HistoryRecorder | None = None,
        *,
        first: int = 0,
        token: str | None = None,
    ) -> None:
        """`token`: else that of the clients."""
        self._ports = [*ports[first % len(ports) :], *ports[: first % len(ports)]]
        self._timeout = timeout
        self._recorder = recorder
        self._headers = headers(token or os.environ.get(TOKEN, ""))
        self._connection: http.client.HTTPConnection | None = None
        self._dice = random.Random(first)
        self._move_at = 0.0
        self._failures = 0

    def settle(self) -> None:
        """To be called before a call is written down: a pause where the last ones failed, so that servers can start."""
        if self._failures:
            time.sleep(min(0.5, 0.02 * 2**self._failures) * self._dice.uniform(0.5, 1.0))

    def call(self, method: str, path: str, body: Any = None, *, more: float = 0.0) -> CallReply:
        """`more` seconds are what a long poll may take beyond the limit."""
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
        """The port of the server that the next call goes to."""
        if time.monotonic() > self._move_at:
            # Else all clients soon use the one server that had no fault for a while.
            self._dice.shuffle(self._ports)
            self.close()
            self._move_at = time.monotonic() + self._dice.uniform(1.0, 4.0)
        return self._ports[0]

    def avoid(self, port: int) -> None:
        """The next call does not go there."""
        if self.choose() == port:
            self._go_on()

    def elsewhere(self) -> None:
        """The next call goes to the next server."""
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
