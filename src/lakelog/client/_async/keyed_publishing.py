"""Publishes messages that carry what identifies them: an idempotency key, or the mark of a delayed message.

A server recognises a repeat by it, so that a message without a definite answer is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from lakelog.client._async.publishing import AsyncTopicState, only
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.retrying import Attempts, RetryRule
from lakelog.client.tracing import publish_span
from lakelog.client.values import Outgoing
from lakelog.errors import EpochChanged, LakelogError
from lakelog.model.message import Message
from lakelog.model.position import Receipt

T = TypeVar("T")
_TRIES = 5


async def publish_keyed(
    state: AsyncTopicState, messages: Sequence[Message], epoch: int | None = None
) -> list[Receipt | LakelogError]:
    """Publish messages, and return a receipt or an error for each.

    `epoch` is the epoch by which the partitions were chosen, if the caller chose them.
    """
    calls = state.calls
    attempts = Attempts(calls.policy)
    results: dict[int, Receipt | LakelogError] = {}
    rules = [RetryRule() for _ in messages]
    pending = list(range(len(messages)))
    while pending:
        answers: Sequence[Receipt | LakelogError]
        try:
            answers = await calls.transport.publish_messages(
                state.name, [messages[index] for index in pending], None, epoch, attempts.seconds()
            )
        except LakelogError as error:
            answers = [error] * len(pending)
        again: list[int] = []
        reasons: list[LakelogError] = []
        for index, answer in zip(pending, answers, strict=True):
            results[index] = answer
            # A server looks for a repeat before it checks the epoch, so that this error is definite.
            if isinstance(answer, LakelogError) and not isinstance(answer, EpochChanged):
                is_repeated = rules[index].allows(answer)
                results[index] = final = rules[index].final(answer)
                if is_repeated:
                    again.append(index)
                    reasons.append(final)
        if not reasons:
            calls.worked(attempts)
        if not reasons or not await calls.pause(attempts, reasons[0]):
            break
        pending = again
    return [results[index] for index in range(len(messages))]


async def publish_scheduled(state: AsyncTopicState, messages: Sequence[Message]) -> list[Receipt | LakelogError]:
    """Schedule delayed messages, and return a receipt or an error for each.

    The partition of a message without an idempotency key is chosen here and kept for all attempts, because a server
    looks for a repeat in one partition.
    """
    results: dict[int, Receipt | LakelogError] = {}
    keyed = [index for index, message in enumerate(messages) if message.idempotency_key is not None]
    if keyed:
        answers = await publish_keyed(state, [messages[index] for index in keyed])
        results.update(zip(keyed, answers, strict=True))
    pending = [index for index in range(len(messages)) if index not in results]
    for attempt in range(_TRIES):
        if not pending:
            break
        info = await state.info(fresh=attempt > 0)
        placed = [replace(messages[index], partition=state.choose(info, messages[index])) for index in pending]
        answers = await publish_keyed(state, placed, info.epoch)
        results.update(zip(pending, answers, strict=True))
        pending = [index for index in pending if isinstance(results[index], EpochChanged)]
    return [results[index] for index in range(len(messages))]


async def schedule_one(state: AsyncTopicState, builder: MessageBuilder[T], outgoing: Outgoing[T]) -> None:
    """Schedule a delayed message, with its span and its hook."""
    with publish_span(state.name) as span:
        message = builder.make(outgoing, (state.known or await state.info()).key_field)
        span.mark(message)
        receipt = only(await publish_scheduled(state, [message]))
        span.published(receipt)
    builder.published([receipt])
