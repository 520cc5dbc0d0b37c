"""Creates OpenTelemetry spans for published messages, and passes W3C trace context in their headers.

Names and attributes follow the OpenTelemetry conventions for messaging. opentelemetry-api is optional, and this module
never loads it: a program that has not loaded it has no tracer provider. `worker/delivery_tracing` has the spans of
handlers, and `consumer/receive_tracing` those of pull consumers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lakelog.errors import LakelogError, PartlyPublished
from lakelog.model import limits
from lakelog.model.message import Message, message_id
from lakelog.model.position import Receipt

if TYPE_CHECKING:
    import pyarrow as pa
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider

    from lakelog.client.publishing.columns import PartitionBatch

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
HEADER_BYTES = 80
"""The size that a producer assumes for the headers of a trace."""

_API = "opentelemetry.trace"
_known: tuple[object, Tracing | None] = (None, None)


def tracing() -> Tracing | None:
    """Return the tracing of this process, or None if it has no tracer provider."""
    api = sys.modules.get(_API)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    known, found = _known
    return found if provider is known else _found(provider)


def publish_span(topic: str, count: int | None = None) -> PublishSpan:
    """Return the span of a call that publishes `count` messages, or one message; without a provider, an empty span."""
    current = tracing()
    return _NO_SPAN if current is None else current.publish(topic, count)


def trace_lines() -> str:
    """Return the lines of an HTTP request that name the current span, or nothing."""
    current = tracing()
    return "" if current is None else "".join(f"{name}: {text}\r\n" for name, text in current.context().items())


def _found(provider: TracerProvider) -> Tracing | None:
    global _known
    from opentelemetry import trace

    is_real = not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    found = Tracing(provider.get_tracer("lakelog.client")) if is_real else None
    _known = (provider, found)
    return found


class Tracing:
    """Creates the spans of a process that has a tracer provider."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.tracer = tracer
        self.propagator = TraceContextTextMapPropagator()

    def publish(self, topic: str, count: int | None = None) -> TracedPublish:
        """Start the span of a publish, below the caller's span."""
        from opentelemetry.trace import SpanKind

        attributes: dict[str, str | int] = {
            "messaging.system": "lakelog",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
        }
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        span = self.tracer.start_span(f"publish {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        return TracedPublish(span, self.context(span))

    def context(self, span: Span | None = None) -> dict[str, str]:
        """Return the headers that name a span; by default, the current span. Without a span, return none."""
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self.propagator.inject(carrier, None if span is None else set_span_in_context(span))
        return carrier

    def links(self, headers: Iterable[Mapping[str, str]]) -> list[Link]:
        """Return a link to the publish of each message with these headers. Messages of one call share its span."""
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, get_current_span

        publishes = [
            get_current_span(self.propagator.extract(each, Context())).get_span_context()
            for each in headers
            if TRACEPARENT in each
        ]
        by_span = {publish.span_id: publish for publish in publishes if publish.is_valid}
        return [Link(publish) for publish in by_span.values()]


class PublishSpan:
    """The span of a publish in a process without a tracer provider: every method does nothing."""

    __slots__ = ()

    def __enter__(self) -> PublishSpan:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def mark(self, message: Message) -> None:
        """Add the trace context to the headers of a message."""

    def marked(self, table: pa.Table) -> pa.Table:
        """Return the table with the trace context in the headers of each row."""
        return table

    def published(self, receipt: Receipt) -> None:
        """Record where the message is stored."""


class TracedPublish(PublishSpan):
    """The span of a publish. In a `with` statement, it is the current span, and ends with the block."""

    __slots__ = ("_current", "_span", "context")

    def __init__(self, span: Span, context: Mapping[str, str]) -> None:
        self._span = span
        self._current: AbstractContextManager[Any] | None = None
        self.context = context

    def __enter__(self) -> TracedPublish:
        from opentelemetry.trace import use_span

        self._current = use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._current is not None
        self._current.__exit__(None, None, None)
        self.end(error)

    def mark(self, message: Message) -> None:
        message.headers = with_context(message.headers, self.context)

    def marked(self, table: pa.Table) -> pa.Table:
        from lakelog.client.publishing.columns import with_headers

        return with_headers(table, lambda headers: with_context(headers, self.context))

    def published(self, receipt: Receipt) -> None:
        if receipt.offset is None:  # a delayed message
            self._span.set_attribute("messaging.message.id", receipt.id)
        else:
            self.placed(receipt.id, receipt.partition, receipt.offset)

    def placed(self, id: str, partition: int, offset: int) -> None:
        """Record the id and the position of the message."""
        self._span.set_attributes(position_attributes(id, partition, offset))

    def end(self, error: BaseException | None = None) -> None:
        """End the span, as failed if there is an error."""
        if error is not None:
            set_failed(self._span, error)
        self._span.end()


_NO_SPAN = PublishSpan()


def end_spans(
    spans: Sequence[TracedPublish], parts: Sequence[PartitionBatch], incarnation: int, error: LakelogError | None
) -> None:
    """End the spans of a producer's batch: with the positions of published messages, or with their errors."""
    left = set(range(len(spans)))
    for part in parts:
        for place, index in enumerate(part.messages_at()):
            failed = part.result if isinstance(part.result, LakelogError) else None
            if isinstance(part.result, int):
                offset = part.result + place
                spans[index].placed(message_id(incarnation, part.partition, offset), part.partition, offset)
            spans[index].end(failed)
            left.discard(index)
    for index in left:
        spans[index].end(error)


def with_context(headers: Mapping[str, str] | None, context: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the headers with the trace context, unless the caller has set one or no more headers are allowed."""
    given = headers or {}
    names = {name.lower() for name in given}
    if TRACEPARENT in names:
        return headers
    added = {name: text for name, text in context.items() if name not in names and len(text) <= limits.MAX_HEADER_BYTES}
    if TRACEPARENT not in added or len(given) >= limits.MAX_HEADERS:
        return headers
    if len(given) + len(added) > limits.MAX_HEADERS:
        added = {TRACEPARENT: added[TRACEPARENT]}
    return {**given, **added}


def position_attributes(id: str, partition: int, offset: int) -> dict[str, str | int]:
    """Return the attributes that name a stored message."""
    return {
        "messaging.message.id": id,
        "messaging.destination.partition.id": str(partition),
        "lakelog.message.offset": offset,
    }


def set_failed(span: Span, error: BaseException) -> None:
    """Set the status of a span, and the type of its error: the code of a Lakelog error, or the class."""
    from opentelemetry.trace import Status, StatusCode

    if isinstance(error, PartlyPublished):
        failed = [result for result in error.results if isinstance(result, LakelogError)]
        span.set_attribute("lakelog.failed_count", len(failed))
    kind = error.code if isinstance(error, LakelogError) else type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(error)))
