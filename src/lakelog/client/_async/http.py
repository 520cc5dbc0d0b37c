"""The transport over HTTP servers. It makes one attempt. After a failure, the next call goes to the next server."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from lakelog.client._async.connection import AsyncConnections, HttpResponse
from lakelog.client._async.http_leases import AsyncHttpLeases
from lakelog.client._async.transport import Number
from lakelog.client._runtime import SocketAddress
from lakelog.client.connecting.home_servers import HomeKey, HomeServers
from lakelog.client.connecting.servers import ServerUrl
from lakelog.client.connecting.target import Target
from lakelog.client.replies import read_reply
from lakelog.client.tracing import trace_lines
from lakelog.client.values import Consumed, Run
from lakelog.errors import Closed, ConfigurationError, LakelogError, NotFound, OutcomeUnknown, Overloaded, Unavailable
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest
from lakelog.model.limits import MAX_FETCH_BYTES
from lakelog.model.message import Message, Schedule
from lakelog.model.position import AtOffset, AtTime, Latest, Position, Receipt, ScheduledReceipt
from lakelog.model.write import StageOptions, StagePiece
from lakelog.wire import frames as wire_frames
from lakelog.wire import problems, shapes
from lakelog.wire.frames import PublishFrame
from lakelog.wire.operations.operation import Operation

_JSON = "application/json"

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class AsyncHttpTransport:
    """The `AsyncTransport` over one or several servers of one installation."""

    def __init__(
        self,
        servers: Sequence[ServerUrl],
        token: str | None,
        target: Target | None = None,
        connections: Callable[[SocketAddress], AsyncConnections] = AsyncConnections,
    ) -> None:
        """Create a transport. `connections` makes the connections to a server, which may be in this process."""
        self._servers = servers
        self._target = target
        self._connections = [connections(server.address) for server in servers]
        self._current = 0
        self._homes = HomeServers(len(servers))
        self._token = f"authorization: Bearer {token}\r\n" if token else ""
        self._leases = AsyncHttpLeases(self)

    async def open(self, seconds: float) -> None:
        """Do nothing: connections are opened when they are needed."""

    async def call(self, operation: Operation[Asked, Found], request: Asked, seconds: float) -> Found:
        rest = operation.without_path(request)
        target, body = operation.target(request), b""
        if rest is not None and operation.method == "GET":
            target = f"{target}?{_query_of(rest)}"
        elif rest is not None:
            body = msgspec.json.encode(rest)
        try:
            answer = await self._call(operation.method, target, seconds, body)
        except OutcomeUnknown as exc:
            if not operation.only_reads:
                raise
            raise Unavailable(exc.detail, **exc.subject) from exc
        shape: Any = None if operation.reply_shape is None else read_reply(answer.body, operation.reply_shape)
        # The type of the reply, or None if there is none.
        return shape if operation.form is None else operation.form.read(shape)

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        producer, sequence = (number[0].hex(), number[1]) if number else (None, None)
        shaped = [_message_shape(message) for message in messages]
        body = msgspec.json.encode(shapes.Publish(messages=shaped, producer=producer, sequence=sequence, epoch=epoch))
        answer = await self._call("POST", f"/v1/topics/{name}/messages", seconds, body)
        results = read_reply(answer.body, shapes.PublishAnswer).results
        _same_count(len(results), len(messages))
        return [_receipt(result) for result in results]

    async def publish_frames(
        self, name: str, frames: Sequence[PublishFrame], seconds: float
    ) -> list[Run | LakelogError]:
        body = wire_frames.write_publish(frames)
        answer = await self._call("POST", f"/v1/topics/{name}/messages", seconds, body, wire_frames.MEDIA_TYPE)
        results = read_reply(answer.body, shapes.FramesAnswer).results
        _same_count(len(results), len(frames))
        return [_run(result) for result in results]

    async def fetch(
        self, name: str, partition: int, position: Position, limits: FetchLimits, seconds: float
    ) -> FetchedBatches:
        query = {**_position_query(position), "limit": limits.max_messages}
        if limits.max_bytes != MAX_FETCH_BYTES:
            query["max_bytes"] = limits.max_bytes
        if limits.wait_seconds:
            query["wait_ms"] = int(limits.wait_seconds * 1000)
        target = f"/v1/topics/{name}/partitions/{partition}/messages?{urlencode(query)}"
        answer = await self._get(target, seconds, wire_frames.MEDIA_TYPE)
        return _fetched(partition, answer)

    async def consume(self, request: ConsumeRequest, seconds: float, repeat: bool = False) -> Consumed:
        return await self._leases.consume(request, seconds, repeat)

    async def answer(self, request: AnswersRequest, seconds: float) -> list[Answered | LakelogError]:
        return await self._leases.answer(request, seconds)

    async def stage(self, topic: str, options: StageOptions, pieces: Sequence[StagePiece], seconds: float) -> None:
        body = wire_frames.write_publish(
            PublishFrame(
                partition=piece.partition,
                epoch=options.epoch,
                count=piece.count,
                sequence=piece.number,
                producer=wire_frames.NO_PRODUCER,
                payload=piece.payload,
            )
            for piece in pieces
        )
        target = f"/v1/topics/{topic}/staged?{_query_of(options)}"
        await self._call("POST", target, seconds, body, wire_frames.MEDIA_TYPE)

    async def close(self) -> None:
        for connections in self._connections:
            connections.close()

    async def send(self, target: str, seconds: float, body: bytes, accept: str, key: HomeKey) -> HttpResponse:
        return await self._call("POST", target, seconds, body, accept=accept, key=key)

    async def _get(self, target: str, seconds: float, accept: str = _JSON) -> HttpResponse:
        try:
            return await self._call("GET", target, seconds, accept=accept)
        except OutcomeUnknown as exc:
            # Nothing is written by reading.
            raise Unavailable(exc.detail, **exc.subject) from exc

    async def _call(
        self,
        method: str,
        target: str,
        seconds: float,
        body: bytes = b"",
        media: str = _JSON,
        *,
        accept: str = _JSON,
        key: HomeKey | None = None,
    ) -> HttpResponse:
        current = self._current % len(self._servers)
        if key is not None:
            current = self._homes.choose(key, current)
        server = self._servers[current]
        content = f"content-type: {media}\r\n" if body else ""
        head = (
            f"{method} {server.prefix}{target} HTTP/1.1\r\nhost: {server.host_header}\r\naccept: {accept}\r\n"
            f"{self._token}{content}{trace_lines()}"
        )
        try:
            answer = await self._connections[current].request(head, body, seconds)
            if key is not None:
                self._homes.learn(key, current, answer.headers)
            if answer.status < 300 and not answer.headers.get("content-type", "").startswith("text/"):
                return answer
            raise _error(server, answer)
        except LakelogError as error:
            retried = isinstance(error, Unavailable | OutcomeUnknown | Overloaded)
            if retried and self._current % len(self._servers) == current:
                self._current = current + 1
            if retried and key is not None:
                self._homes.forget(key, current)
            explained = self._target.explain(error) if self._target else error
            if explained is error:
                raise
            raise explained from error.__cause__


def _error(server: ServerUrl, answer: HttpResponse) -> LakelogError:
    """Return the error of a response. Without a problem document of Lakelog, the outcome is unknown."""
    if answer.headers.get("content-type", "").startswith(problems.MEDIA_TYPE):
        try:
            error = problems.error_of(msgspec.json.decode(answer.body, type=dict[str, Any]))
        except msgspec.MsgspecError:
            return OutcomeUnknown(f"{server} returned {answer.status} with an error that cannot be read.")
        if type(error) is NotFound and server.prefix:
            return ConfigurationError(f"{server} has no API below {server.prefix}. Check the path of the URL.")
        if isinstance(error, Closed) or type(error) is Unavailable:
            reported = {"reason": error.detail.rstrip("."), **error.subject}
            error = Unavailable(f"{server} is not available: {error.detail}", **reported)
        after = answer.headers.get("retry-after", "")
        if after.isdigit():
            error.subject.setdefault("retry_after", int(after))
        return error
    if answer.status < 500:
        return ConfigurationError(
            f"{server} returned {answer.status}, but the response is not from Lakelog. Check the URL."
        )
    return OutcomeUnknown(
        f"{server} returned {answer.status} without an error from Lakelog. Check whether a proxy responded."
    )


def _query_of(fields: msgspec.Struct) -> str:
    plain: dict[str, Any] = msgspec.to_builtins(fields)
    return urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in plain.items()})


def _same_count(found: int, sent: int) -> None:
    if found != sent:
        raise OutcomeUnknown(f"The response has {found} results for {sent}. The server may run another version.")


def _message_shape(message: Message) -> shapes.MessageShape:
    value: dict[str, Any] = {"value": msgspec.Raw(b"null")}
    if message.value is not None:
        value = {"value_base64": base64.b64encode(message.value).decode()}
    if message.key is not None:
        value["key_base64"] = base64.b64encode(message.key).decode()
    return shapes.MessageShape(
        headers=dict(message.headers) if message.headers else None,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        partition=message.partition,
        idempotency_key=message.idempotency_key,
        created_at=message.created_at,
        expires_ms=message.expires_ms,
        expires_at=message.expires_at,
        **value,
        **({} if message.schedule is None else _schedule_fields(message.schedule)),
    )


def _schedule_fields(schedule: Schedule) -> dict[str, Any]:
    mark = None if schedule.mark is None else schedule.mark.hex()
    return {"delay_ms": schedule.delay_ms, "deliver_at": schedule.deliver_at, "schedule_id": mark}


def _receipt(result: shapes.PublishResult) -> Receipt | LakelogError:
    if result.error is not None:
        return problems.error_of(result.error)
    if result.id is not None and result.partition is not None and result.due_at is not None:
        return ScheduledReceipt(
            id=result.id,
            partition=result.partition,
            offset=result.offset,
            due_at=result.due_at,
            duplicate=result.duplicate,
        )
    if result.id is None or result.partition is None or result.offset is None:
        return OutcomeUnknown("The response has no offset for the message. The server may run another version.")
    return Receipt(id=result.id, partition=result.partition, offset=result.offset, duplicate=result.duplicate)


def _run(result: shapes.FrameResult) -> Run | LakelogError:
    if result.error is not None:
        return problems.error_of(result.error)
    if result.offset is None:
        return OutcomeUnknown("The response has no offset for the batch. The server may run another version.")
    return Run(result.partition, result.offset, result.count)


def _position_query(position: Position) -> dict[str, str | int]:
    if isinstance(position, AtOffset):
        return {"offset": position.offset}
    if isinstance(position, AtTime):
        return {"time": position.time.isoformat()}
    if isinstance(position, Latest):
        return {"last": position.back} if position.back else {"offset": "latest"}
    return {"offset": "earliest"}


def _fetched(partition: int, answer: HttpResponse) -> FetchedBatches:
    try:
        numbers = {
            name: int(answer.headers[f"lakelog-{name}"])
            for name in ("incarnation", "start", "next-offset", "log-start", "high-watermark")
        }
    except (KeyError, ValueError) as exc:
        raise Unavailable(f"The response has no valid header {exc}. The server may run another version.") from exc
    return FetchedBatches(
        incarnation=numbers["incarnation"],
        partition=partition,
        start=numbers["start"],
        until=numbers["next-offset"],
        log_start=numbers["log-start"],
        high_watermark=numbers["high-watermark"],
        batches=wire_frames.read_fetch(partition, answer.body),
    )
