"""Publishes messages in the caller's own database transaction. The relay moves them to the topic when it commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.publishing.transactions import MAX_DOCUMENT_BYTES, async_publish_in, document_of
from lakelog.client.tracing import publish_span
from lakelog.client.values import Outgoing
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.message import Message
from lakelog.model.position import OutboxReceipt, Receipt


async def async_publish_in_outbox(
    state: AsyncTopicState, builder: MessageBuilder[Any], outgoing: Sequence[Outgoing[Any]], transaction: object
) -> list[Receipt]:
    """Write the messages to the outbox through the caller's connection, and return their receipts in order."""
    state.calls.check_open()
    if state.calls.place.startswith("memory:"):
        raise InvalidRequest("`transaction` needs a log on PostgreSQL: a log in memory has no relay.")
    messages: list[Message] = []
    for index, each in enumerate(outgoing):
        # The topic's key field is needed, and asked for, only if no key is given.
        needs_field = each.key is None and builder.key is None
        known = (state.known or await state.info()) if needs_field else None
        try:
            messages.append(builder.make(each, known.key_field if known else None))
        except LakelogError as error:
            raise (error if len(outgoing) == 1 else error.of_message(index)) from error
    receipts: list[Receipt] = []
    with publish_span(state.name, len(messages)) as span:
        for message in messages:
            span.mark(message)
        for some in _chunks(messages):
            ids = await async_publish_in(transaction, document_of(state.name, some))
            receipts += [OutboxReceipt(id=each) for each in ids]
    return receipts


def _chunks(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages in parts of limited size, in order."""
    chunks: list[list[Message]] = []
    size = MAX_DOCUMENT_BYTES
    for message in messages:
        weight = len(message.value or b"") + 500
        if size + weight > MAX_DOCUMENT_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(message)
        size += weight
    return chunks
