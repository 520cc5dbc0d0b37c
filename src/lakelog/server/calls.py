"""A call and its response, as handlers see them. The module does not know routes.

It uses no framework's request object, because the publish of a single message must take only microseconds here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

from lakelog.engine.budget import Budget
from lakelog.errors import InvalidRequest, LakelogError, NotAuthenticated, TooLarge
from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.model.topic import Scope
from lakelog.server.auth import Grant

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_SECONDS = 30.0
"""Timeout for a body that arrives slowly and holds memory of the budget."""

JSON_TYPE: Header = (b"content-type", b"application/json")

HOLD = "lakelog.hold"
"""A key of the ASGI scope: a function that holds back the head of the response, to send it together with its body."""

NEEDS_GRANT = "lakelog.needs_grant"
"""A key of the ASGI scope: the caller is accepted only with a grant of another server."""


def body_hash(body: bytes) -> str:
    """Return the hash of a body, which the grant of a forwarded call contains."""
    return blake2b(body, digest_size=32).hexdigest()


class Disconnected(Exception):
    """The client disconnected, so no response is needed."""


class HttpError(Exception):
    """A refusal whose HTTP status is more specific than its code: 405, 406, 408, 415."""

    def __init__(self, status: int, detail: str, *headers: Header) -> None:
        super().__init__(detail)
        self.status = status
        self.error: LakelogError = InvalidRequest(detail)
        self.headers = headers


class Response:
    """The response of a call. The app adds the length and the request id."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, *headers: Header) -> None:
        self.status = status
        self.body = body
        self.headers = headers


class StreamedResponse(Response):
    """A response whose body is sent piece by piece, until `pieces` ends."""

    __slots__ = ("pieces",)

    def __init__(self, status: int, pieces: AsyncGenerator[bytes, None], *headers: Header) -> None:
        super().__init__(status, b"", *headers)
        self.pieces = pieces


class Call:
    """A request that is being handled."""

    __slots__ = (
        "_budget",
        "asgi",
        "body_hash",
        "body_read",
        "changes",
        "ended",
        "environment_id",
        "grant",
        "headers",
        "held",
        "parameters",
        "passed_on",
        "receive",
        "request_id",
        "scope",
        "waited",
        "watch",
    )

    scope: Scope
    """The scope of the caller; set after authentication, and never from the path."""

    def __init__(self, asgi: AsgiScope, receive: Receive, budget: Budget) -> None:
        self.asgi = asgi
        self.receive = receive
        self.headers: dict[bytes, bytes] = dict(asgi["headers"])
        self.parameters: dict[str, str] = {}
        self.changes: dict[str, str] | None = None
        self.request_id = b""
        self.held = 0
        self.waited = False
        self.body_read = False
        self.passed_on = False
        """True if another server handled the call and wrote the audit log."""
        self.grant: Grant | None = None
        """The rights of the caller; None before the caller is known."""
        self.body_hash: str | None = None
        """The hash that the body must have, if the grant of another server says so."""
        self.environment_id: int | None = None
        """The environment that the call counts for; None before the caller is known."""
        self.ended: asyncio.Future[None] | None = None
        """A future that is done when the caller's token is revoked or has expired; only for calls that wait."""
        self.watch: Callable[[], asyncio.Future[None]] | None = None
        self._budget = budget

    def hold(self, size: int) -> None:
        """Take memory from the budget until the call ends; raise `Overloaded` if there is not enough."""
        self._budget.take(size, self.environment_id or 0)
        self.held += size

    def note(self, **changes: str) -> None:
        """Record what the call changes, for the audit log."""
        self.changes = {**(self.changes or {}), **changes}

    def watch_token(self) -> asyncio.Future[None] | None:
        """Start to watch the caller's token, and return the future `ended`. Closing the call ends the watch."""
        if self.ended is None and self.watch is not None:
            self.ended = self.watch()
        return self.ended

    def release(self) -> None:
        """Give the memory back."""
        if self.held:
            self._budget.give(self.held, self.environment_id or 0)
            self.held = 0

    def close(self) -> None:
        """End the call: give the memory back and stop watching the token."""
        self.release()
        if self.ended is not None:
            self.ended.cancel()

    async def body(self) -> bytes:
        """Return the whole body, limited by its maximum size and the budget."""
        body = await self._whole_body()
        if self.body_hash is not None and not compare_digest(body_hash(body), self.body_hash):
            raise NotAuthenticated("The grant of another server is not valid: it is for another body.")
        return body

    async def _whole_body(self) -> bytes:
        encoding = self.headers.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() != b"identity":
            raise HttpError(415, "A body with a Content-Encoding is not accepted. Send it unencoded.")
        declared = self._declared_length()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self.receive()
        except TimeoutError:
            raise _late_body() from None
        if message["type"] != "http.request":
            raise Disconnected
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            return await self._rest(body, declared)
        self.body_read = True
        if len(body) > MAX_BODY_BYTES:
            raise _too_large(len(body))
        self.hold(len(body))
        return body

    async def gone(self) -> None:
        """Wait until the client disconnects. The body of the call must be empty or already read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def _declared_length(self) -> int | None:
        text = self.headers.get(b"content-length")
        if text is None:
            return None
        if not text.isdigit() or len(text) > 18:
            raise InvalidRequest("The Content-Length is not a number.")
        if (length := int(text)) > MAX_BODY_BYTES:
            raise _too_large(length)
        return length

    async def _rest(self, first: bytes, declared: int | None) -> bytes:
        chunks, size, more = [first], len(first), True
        # The declared length is reserved immediately: a body that does not fit is refused before it is sent.
        self.hold(size if declared is None else max(declared, size))
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await self.receive()
                    if message["type"] != "http.request":
                        raise Disconnected
                    chunk: bytes = message.get("body", b"")
                    size += len(chunk)
                    if size > MAX_BODY_BYTES:
                        raise _too_large(size)
                    if size > self.held:
                        self.hold(size - self.held)
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise _late_body() from None
        self.body_read = True
        return b"".join(chunks)


def _late_body() -> HttpError:
    return HttpError(408, f"The body did not arrive within {BODY_SECONDS:g} s; send it again.")


def _too_large(size: int) -> TooLarge:
    return TooLarge(f"The body has {size} bytes or more; at most {MAX_BODY_BYTES} are accepted. Send less at once.")


Handler = Callable[[Call], Awaitable[Response]]
"""Handles the calls of one operation."""
