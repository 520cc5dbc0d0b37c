"""The fast path of a small publish: one JSON message to a known topic, without a task and without ASGI.

It handles only what it can decide immediately: a cached token and topic, enough memory, a complete body, and a valid
message. Anything else takes the normal path through the app, with the same response. On both paths, the engine decides
what happens to the message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Protocol

from lakelog.engine import Engine
from lakelog.engine.log.committer import AppendResult
from lakelog.engine.log.publish import Submitted
from lakelog.errors import LakelogError
from lakelog.model.limits import MAX_NAME_LENGTH
from lakelog.model.topic import Scope
from lakelog.server.auth import Authenticator
from lakelog.server.calls import Response
from lakelog.server.drain import Drain
from lakelog.server.messages import Decoded, decode_publish
from lakelog.server.publishing import Publishing
from lakelog.server.traffic import Traffic
from lakelog.wire.operations.operation import Rights

MAX_BYTES = 16 << 10
"""The largest body of the fast path; a larger one rarely arrives in one piece."""

_START, _END = "/v1/topics/", "/messages"
_MAX_TARGET_BYTES = len(_START) + MAX_NAME_LENGTH + len(_END)
_UNUSUAL = frozenset({b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"})


def topic_of(target: bytes) -> str | None:
    """Return the topic of a publish; None if the target is another one or contains escapes."""
    # Longer targets would fill the cache with megabytes.
    return _plain_topic(target) if len(target) <= _MAX_TARGET_BYTES else None


@lru_cache(maxsize=4096)
def _plain_topic(target: bytes) -> str | None:
    text = target.decode("latin-1")
    name = text[len(_START) : -len(_END)]
    is_simple = name.isascii() and name.translate(_NAME_MARKS).isalnum()
    return name if is_simple and text == f"{_START}{name}{_END}" else None


_NAME_MARKS = str.maketrans("", "", "-_.")


def has_small_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the headers announce a small JSON body and nothing unusual."""
    length = headers.get(b"content-length", b"")
    return (
        headers.get(b"content-type") == b"application/json"
        and 0 < len(length) <= 5
        and int(length) <= MAX_BYTES
        and _UNUSUAL.isdisjoint(headers)
    )


class Connection(Protocol):
    """The connection that receives the response."""

    def send_answer(self, request: FastRequest, answer: Response) -> None: ...


class FastRequest:
    """A running publish. To uvicorn it is a cycle of its connection, and pipelined requests wait for it."""

    __slots__ = (
        "connection",
        "decoded",
        "disconnected",
        "keep_alive",
        "request_id",
        "response_complete",
        "scope",
        "size",
        "started",
        "submitted",
    )

    def __init__(self, connection: Connection, scope: Scope, decoded: Decoded, submitted: Submitted, size: int) -> None:
        self.connection = connection
        self.scope = scope
        self.decoded = decoded
        self.submitted = submitted
        self.size = size
        self.request_id = b""
        self.started = 0.0
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False

    @property
    def message_event(self) -> FastRequest:
        """A substitute for the event that uvicorn sets when the client disconnects. Nothing waits for it."""
        return self

    def set(self) -> None:
        pass


class FastPublish:
    """Publishes small messages for all connections of a process."""

    def __init__(
        self, engine: Engine, authenticator: Authenticator, traffic: Traffic, drain: Drain, rights: Rights | None
    ) -> None:
        """Create the fast path. A caller needs one of `rights`."""
        self._traffic = traffic
        self._publisher = engine.publisher
        self._budget = engine.budget
        self._authenticator = authenticator
        self._rights = rights if isinstance(rights, frozenset) else frozenset()
        self._publishing = Publishing(engine, traffic.metrics)
        self._drain = drain
        self._slow: set[asyncio.Task[None]] = set()

    def begin(
        self, connection: Connection, topic: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> FastRequest | None:
        """Submit the message of the body. Return None without an effect if it must take the normal path."""
        traffic, size, started = self._traffic, len(body), time.perf_counter()
        grant = self._authenticator.known(headers.get(b"authorization"))
        if grant is None or grant.rights.isdisjoint(self._rights):
            return None
        if not self._authenticator.accepts_origin(headers):
            return None
        environment = grant.scope.environment_id
        if self._drain.begun or not traffic.has_room(environment, traffic.in_flight):
            return None
        if not self._budget.has(size, environment):
            return None
        try:
            decoded = decode_publish(body)
        except LakelogError:
            return None
        messages, numbered, epoch = decoded
        if len(messages) != 1:
            return None
        submitted = self._publisher.submit_one(grant.scope, topic, messages[0], numbered, epoch)
        if submitted is None:
            return None
        self._budget.add(size, environment)
        traffic.in_flight += 1
        traffic.shares.take(environment, 1)
        request = FastRequest(connection, grant.scope, decoded, submitted, size)
        request.request_id = traffic.ids.take(headers.get(b"x-request-id"))
        request.started = started
        submitted.done.add_done_callback(partial(self._committed, request))
        return request

    def _committed(self, request: FastRequest, done: asyncio.Future[AppendResult]) -> None:
        error = done.exception()
        receipt = request.submitted.receipt(done.result()) if error is None else None
        if receipt is not None:
            self._traffic.metrics.publish_bytes += request.size
            self._finish(request, self._publishing.answer([receipt]))
            return
        task = asyncio.ensure_future(self._answer_slowly(request, error))
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)

    async def _answer_slowly(self, request: FastRequest, error: BaseException | None) -> None:
        """Respond with a failure, or retry with the current topic if the refusal says that nothing was written."""
        messages, numbered, epoch = request.decoded
        try:
            if error is not None and not isinstance(error, LakelogError):
                raise error
            results = (
                [error]
                if error is not None
                else await self._publisher.messages(
                    request.scope, request.submitted.topic.name, messages, numbered=numbered, epoch=epoch
                )
            )
            self._traffic.metrics.publish_bytes += request.size
            answer = self._publishing.answer(results)
        except Exception as failure:
            answer = self._traffic.failed(failure, "publish", request.request_id)
        self._finish(request, answer)

    def _finish(self, request: FastRequest, answer: Response) -> None:
        if self._drain.begun:
            request.keep_alive = False
        try:
            request.connection.send_answer(request, answer)
            self._traffic.answered("publish", answer.status, request.started)
        finally:
            environment = request.scope.environment_id
            self._traffic.in_flight -= 1
            self._traffic.shares.give(environment, 1)
            self._budget.give(request.size, environment)
