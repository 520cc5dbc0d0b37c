"""HTTP/1.1 on a connection: uvicorn's protocol with limits for size and time, and one write per response.

It parses and writes; the app decides the content of responses.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from lakelog.errors import InvalidRequest, LakelogError, Overloaded, first_line
from lakelog.reporting import log_event
from lakelog.server import calls
from lakelog.server.calls import HOLD, NEEDS_GRANT, HttpError, Response
from lakelog.server.connections import Connections
from lakelog.server.fast_publish import FastPublish, FastRequest, has_small_json, topic_of
from lakelog.server.problems import error_response

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS = 10.0
"""Timeout for the first byte of a connection, and for a head from its first byte on."""
BODY_SECONDS = calls.BODY_SECONDS + 5.0
"""Timeout for a body that no handler waits for."""
STALL_SECONDS = 60.0
"""Timeout for a caller that does not read its response."""

_log = logging.getLogger(__name__)


class JoiningTransport:
    """A transport that can hold back one write and send it together with the next one.

    uvloop makes a system call for each write, and a client that receives the head of a response alone wakes up twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._hold_next = False
        self._held: bytes | None = None
        self.is_closing = transport.is_closing

    def hold(self) -> None:
        """Hold back the next write until the one after it."""
        self._hold_next = True

    def write(self, data: bytes) -> None:
        if self._hold_next:
            self._hold_next, self._held = False, data
            return
        if self._held is not None:
            data, self._held = self._held + data, None
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _own_failure(error: BaseException | None) -> BaseException | None:
    """A failure of the server while it read a request, such as a lack of memory, that the caller cannot fix."""
    if not isinstance(error, httptools.HttpParserCallbackError):
        return None
    cause = error.__context__
    return None if cause is None or isinstance(cause, (ValueError, httptools.HttpParserError)) else cause


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 with a limit for the head of a request, and problem responses for malformed requests.

    A small publish does not become an ASGI call: its head is kept until the body arrives, and the fast path takes both.
    If the fast path refuses them, or the body does not arrive with the head, uvicorn gets them.
    """

    _in_head = False
    _in_body = False
    _awaited = ""
    """The part of a request that the timer waits for: head, body or nothing."""
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _address: str | None = None
    """The address of an accepted connection."""
    _head_bytes = 0
    _topic: str | None = None
    """The kept head of a small publish."""
    _named: Mapping[bytes, bytes]
    _body = b""

    def __init__(self, config: uvicorn.Config, *args: Any, needs_grant: bool = False, **kwargs: Any) -> None:
        """Create the protocol of a connection. With `needs_grant`, callers without a certificate need a server's grant.

        This is the port for other servers, if clients need certificates.
        """
        super().__init__(config, *args, **kwargs)
        self._fast_publish: FastPublish | None = getattr(config.app, "fast_publish", None)
        self._connections: Connections | None = getattr(config.app, "connections", None)
        self._needs_grant = needs_grant

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]
        if self._needs_grant and not transport.get_extra_info("peercert"):
            self._fast_publish = None
        else:
            self._needs_grant = False
        if self._connections is not None:
            address = self.client[0] if self.client else ""
            if refusal := self._connections.open(address):
                self._refuse(503, Overloaded(refusal, retry_after=1))
                return
            self._address = address
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connections is not None and self._address is not None:
            self._connections.close(self._address)
            self._address = None
        self._await("")
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _await(self, part: str) -> None:
        """Close the connection if this part of a request does not arrive in time."""
        self._awaited = part
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if part:
            self._timer = self.loop.call_later(HEAD_SECONDS if part == "head" else BODY_SECONDS, self._late)

    def _late(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.flow.read_paused or (self._awaited == "head" and is_answering):
            # The caller may wait for the response to an earlier request.
            self._await(self._awaited)
        elif not self.transport.is_closing():
            seconds = HEAD_SECONDS if self._awaited == "head" else BODY_SECONDS
            if self._in_head or (self._in_body and not self._has_begun_to_answer()):
                text = f"The {self._awaited} of the request did not arrive within {seconds:g} s."
                self._refuse(408, InvalidRequest(text))
            else:
                self.transport.close()

    def _has_begun_to_answer(self) -> bool:
        return self.cycle is not None and getattr(self.cycle, "response_started", True)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if self._topic is not None and not self.transport.is_closing():
            self._pass_on()
        awaited = "head" if self._in_head else "body" if self._in_body else ""
        if awaited != self._awaited:
            self._await(awaited)
        # The parser keeps an unfinished head in memory, whatever its length.
        self._head_bytes = self._head_bytes + len(data) if was_in_head and self._in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of the request exceeds {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._in_head = True
        # Not the scope of an ASGI call: a request of the fast path needs none.
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        if self._fast_publish is not None and (topic := topic_of(self.url)) and self._is_plain():
            self._topic = topic
        else:
            self._begin_call()

    def on_body(self, body: bytes) -> None:
        if self._topic is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._topic is not None:
            assert self._fast_publish is not None
            request = self._fast_publish.begin(self, self._topic, self._named, self._body)
            if request is not None:
                self._topic, self._body, self.cycle = None, b"", request  # type: ignore[assignment]
                return
            self._pass_on()
        super().on_message_complete()

    def _is_plain(self) -> bool:
        """Return whether this is a POST with a small JSON body, on a connection without waiting requests."""
        cycle, parser = self.cycle, self.parser
        self._named = dict(self.headers)
        return (
            (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and has_small_json(self._named)
        )

    def _pass_on(self) -> None:
        """Give uvicorn the kept head and the part of the body that has arrived."""
        self._begin_call()
        if self._body:
            super().on_body(self._body)
        self._topic, self._body = None, b""

    def _begin_call(self) -> None:
        """Let uvicorn call the app with the head of the request."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        self.scope[HOLD] = self.transport.hold  # type: ignore[literal-required, attr-defined]
        if self._needs_grant:
            self.scope[NEEDS_GRANT] = True  # type: ignore[literal-required]
        super().on_headers_complete()

    def send_answer(self, request: FastRequest, answer: Response) -> None:
        """Write the response to a publish of the fast path, as uvicorn would."""
        request.response_complete = True
        if request.disconnected or self.transport.is_closing():
            return
        headers = b"".join([b"%s: %s\r\n" % each for each in (*self.server_state.default_headers, *answer.headers)])
        close = b"" if request.keep_alive else b"connection: close\r\n"
        self.transport.write(
            b"%s%sx-request-id: %s\r\ncontent-length: %d\r\n%s\r\n%s"
            % (STATUS_LINE[answer.status], headers, request.request_id, len(answer.body), close, answer.body)
        )
        if not request.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def send_400_response(self, msg: str) -> None:
        # uvicorn calls it for any failure of the parser, even if the request did not cause it.
        if failure := _own_failure(sys.exc_info()[1]):
            reason = f"{type(failure).__name__}: {first_line(failure)}"
            message = f"A request could not be read, and its connection is closed: {reason}"
            log_event(_log, logging.ERROR, "request_not_read", message, failure, reason=reason)
            self.transport.close()
            return
        self._refuse(400, InvalidRequest(msg))

    def _refuse(self, status: int, error: LakelogError) -> None:
        """Respond without a call, and close the connection."""
        refusal = HttpError(status, error.detail)
        refusal.error = error
        answer = error_response(refusal, b"none")
        head = STATUS_LINE[status] + b"".join(b"%s: %s\r\n" % header for header in answer.headers)
        self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body) + answer.body)
        self.transport.close()
