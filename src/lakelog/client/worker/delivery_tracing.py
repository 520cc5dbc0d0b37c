"""Creates an OpenTelemetry span for each delivery to a handler, in the trace of the publish.

The first delivery is a child of the publish. A retry, and the delivery of a redriven message, is a child too, and has a
link to the publish: it may run hours later, when backends no longer add to the trace. A span ends when the server has
accepted the answer to the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lakelog.client.tracing import TRACEPARENT, Tracing, position_attributes, set_failed, tracing
from lakelog.model.lease import Answered, Verb

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from lakelog.client.reading.messages import ReceivedMessage
    from lakelog.client.worker.handlers import Handler
    from lakelog.client.worker.leased_message import LeasedMessage
    from lakelog.client.worker.threads import HandlerThreads


class DeliveryTracing:
    """Starts the handlers of one subscription, each in a span if the process has a tracer provider."""

    def __init__(self, group: str, handler: Handler) -> None:
        self._group = group
        self._handler = handler

    def starter(self) -> Callable[[object, LeasedMessage, HandlerThreads], asyncio.Future[Any]]:
        """Return the function that starts a handler. It is looked up once for messages that start together."""
        current = tracing()
        return self._handler.begin if current is None else partial(self._begin, current)

    def _begin(
        self, current: Tracing, value: object, leased: LeasedMessage, threads: HandlerThreads
    ) -> asyncio.Future[Any]:
        """Start the handler, with the span of the delivery as its current span."""
        from opentelemetry.trace import use_span

        span = leased.span = DeliverySpan(_started(current, self._group, leased))
        with use_span(span.span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            try:
                return self._handler.begin(value, leased, threads)
            except BaseException as error:
                span.end(Verb.RELEASE, error)
                raise


class DeliverySpan:
    """The span of one delivery, from the start of its handler to the answer."""

    __slots__ = ("_ended", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self._ended = False

    def answered_by(self, verb: Verb, error: BaseException | None, answer: asyncio.Future[Answered]) -> None:
        """End the span when the server has accepted or refused the answer."""

        def end(answer: asyncio.Future[Answered]) -> None:
            refusal = asyncio.CancelledError() if answer.cancelled() else answer.exception()
            dead = refusal is None and bool(answer.result().dead)
            self.end(verb, refusal or error, dead=dead, accepted=refusal is None)

        answer.add_done_callback(end)

    def end(self, verb: Verb, error: BaseException | None = None, *, dead: bool = False, accepted: bool = True) -> None:
        """End the span with the answer: `ack`, `nack`, `fail`, `discard` or `release`. Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self.span.set_attribute("lakelog.answer", str(verb))
        if accepted:
            self.span.add_event(str(verb))
        if dead:
            self.span.add_event("dead_letter")
        if error is not None:
            set_failed(self.span, error)
        elif verb in (Verb.NACK, Verb.FAIL):
            set_failed(self.span, _Refused(verb))
        self.span.end()


class BatchSpan:
    """The span of a batch handler in a process without a tracer provider: it does nothing."""

    def ends_with(self, running: asyncio.Future[Any]) -> None:
        """End the span when the handler has ended."""


class _TracedBatch(BatchSpan):
    def __init__(self, span: Span) -> None:
        self._span = span

    def ends_with(self, running: asyncio.Future[Any]) -> None:
        def end(running: asyncio.Future[Any]) -> None:
            error = asyncio.CancelledError() if running.cancelled() else running.exception()
            if error is not None:
                set_failed(self._span, error)
            self._span.end()

        running.add_done_callback(end)


_NO_SPAN = BatchSpan()


@contextmanager
def batch_span(group: str, messages: Sequence[ReceivedMessage[Any]]) -> Iterator[BatchSpan]:
    """Yield the span of a batch handler, which is current in the block. It has a link to the publish of each message.

    The messages belong to many traces, so the span begins its own.
    """
    current = tracing()
    if current is None:
        yield _NO_SPAN
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, use_span

    topic = messages[0].topic
    links = current.links(message.headers for message in messages)
    attributes = {**_attributes(topic, group), "messaging.batch.message_count": len(messages)}
    span = current.tracer.start_span(
        f"process {topic}", Context(), kind=SpanKind.CONSUMER, attributes=attributes, links=links
    )
    with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        try:
            yield _TracedBatch(span)
        except BaseException as error:
            # The handler could not be started.
            set_failed(span, error)
            span.end()
            raise


def _attributes(topic: str, group: str) -> dict[str, str | int]:
    return {
        "messaging.system": "lakelog",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": group,
    }


class _Refused(Exception):
    """The error of a handler that answered with a nack or fail, and raised nothing."""


def _started(current: Tracing, group: str, leased: LeasedMessage) -> Span:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, get_current_span

    message = leased.message
    attributes = {
        **_attributes(message.topic, group),
        "lakelog.attempt": leased.attempt,
        **position_attributes(message.id, message.partition, message.offset),
    }
    if message.lineage is not None:
        attributes["lakelog.lineage"] = message.lineage
    # Not the current context: the worker may have been started in a span of the program.
    context, links = Context(), []
    if TRACEPARENT in message.headers:
        context = current.propagator.extract(message.headers, context)
        publish = get_current_span(context).get_span_context()
        if publish.is_valid and (leased.attempt > 1 or message.lineage is not None):
            links = [Link(publish)]
    return current.tracer.start_span(
        f"process {message.topic}", context, kind=SpanKind.CONSUMER, attributes=attributes, links=links
    )
