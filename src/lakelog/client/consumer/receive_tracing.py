"""Creates an OpenTelemetry span for each call of a pull consumer that returned messages.

The span covers the call, with the wait for messages, and has a link to the publish of each message. It is a child of
the program's current span. A program that processes a message opens the span for that itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.client.tracing import position_attributes, tracing

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.reading.messages import ReceivedMessage


def receive_began() -> int:
    """Return the time at which the span of a call begins; 0 without a tracer provider, when no span is needed."""
    return 0 if tracing() is None else time.time_ns()


def trace_message(began: int, group: str | None, message: ReceivedMessage[Any]) -> None:
    """Create the span of a call that returned one message."""
    position = position_attributes(message.id, message.partition, message.offset)
    _trace(began, group, {message.topic}, position, [message.headers])


def trace_batch(began: int, group: str | None, messages: Sequence[ReceivedMessage[Any]]) -> None:
    """Create the span of a call that returned a batch."""
    topics = {message.topic for message in messages}
    _trace(began, group, topics, _count(len(messages)), [message.headers for message in messages])


def trace_table(began: int, group: str | None, topic: str, table: pa.Table) -> None:
    """Create the span of a call that returned columns."""
    headers = [dict(each or ()) for each in table.column("headers").to_pylist()]
    _trace(began, group, {topic}, _count(table.num_rows), headers)


def _count(messages: int) -> dict[str, str | int]:
    return {"messaging.batch.message_count": messages}


def _trace(
    began: int,
    group: str | None,
    topics: set[str],
    more: Mapping[str, str | int],
    headers: Iterable[Mapping[str, str]],
) -> None:
    from opentelemetry.trace import SpanKind

    current = tracing()
    if current is None:
        return
    attributes: dict[str, str | int] = {
        "messaging.system": "lakelog",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        **more,
    }
    # Messages of several topics have no common destination.
    topic = next(iter(topics)) if len(topics) == 1 else ""
    if topic:
        attributes["messaging.destination.name"] = topic
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    name = f"receive {topic}".strip()
    links = current.links(headers)
    current.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, links=links, start_time=began).end()
