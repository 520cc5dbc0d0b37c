"""Rejected messages: lists them, publishes them again, and discards them."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.batches import decode, to_messages
from lakelog.engine.log.publish import Publisher
from lakelog.engine.outbox.rows import definite
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.message import Message
from lakelog.model.outbox import RejectedChange, RejectedChanged, RejectedMessage, RejectedPage, RejectedQuery
from lakelog.model.topic import Scope
from lakelog.storage.outbox import StoredRejection
from lakelog.storage.store import Catalog

_OF_MESSAGE = ("key", "content_type", "correlation_id", "created_at", "expires_at", "idempotency_key")


class RejectedMessages:
    """The rejected messages of all environments."""

    def __init__(self, catalog: Catalog, publisher: Publisher) -> None:
        self._catalog = catalog
        self._publisher = publisher

    async def list(self, scope: Scope, query: RejectedQuery) -> RejectedPage:
        found = await self._catalog.rejected.rejected_list(
            scope, topic=query.topic, after=query.after, limit=query.limit
        )
        following = found[-1].number if len(found) == query.limit else None
        return RejectedPage(messages=[to_rejected(each) for each in found], next=following)

    async def retry(self, scope: Scope, change: RejectedChange) -> RejectedChanged:
        """Publish rejected messages again. A message without an idempotency key gets its id as one.

        The key makes a retry safe that is interrupted before the message is removed from the list.
        """
        changed = 0
        refused: list[LakelogError] = []
        for each in await self._chosen(scope, change):
            message = message_of(each)
            message.idempotency_key = message.idempotency_key or each.message_id
            try:
                (answer,) = await self._publisher.messages(scope, each.topic, [message])
            except LakelogError as error:
                answer = error
            if isinstance(answer, LakelogError):
                refused.append(definite(answer))
                again = StoredRejection(
                    message_id=each.message_id,
                    source=each.source,
                    topic=each.topic,
                    code=answer.code,
                    reason=answer.detail,
                    payload=each.payload,
                )
                await self._catalog.rejected.rejected_add(scope, [again])
            else:
                changed += await self._catalog.rejected.rejected_remove(scope, [each.message_id])
        return RejectedChanged(changed=changed, refused=len(refused), reason=refused[0].detail if refused else None)

    async def discard(self, scope: Scope, change: RejectedChange) -> RejectedChanged:
        chosen = await self._chosen(scope, change)
        removed = await self._catalog.rejected.rejected_remove(scope, [each.message_id for each in chosen])
        return RejectedChanged(changed=removed)

    async def _chosen(self, scope: Scope, change: RejectedChange) -> Sequence[StoredRejection]:
        rejected = self._catalog.rejected
        if change.message_ids:
            found = await rejected.rejected_find(scope, change.message_ids)
            return [each for each in found if change.topic in (None, each.topic)]
        if change.topic is None:
            raise InvalidRequest("Choose rejected messages by `message_ids` or by `topic`.")
        return await rejected.rejected_list(scope, topic=change.topic, limit=change.limit)


def message_of(stored: StoredRejection) -> Message:
    """Return the message of a rejection, with the partition that its publisher chose."""
    message = to_messages(decode(stored.payload))[0]
    message.partition = stored.partition
    return message


def to_rejected(stored: StoredRejection) -> RejectedMessage:
    message = message_of(stored)
    assert stored.at is not None, "it was read from the list"
    return RejectedMessage(
        id=stored.message_id,
        source=stored.source,
        topic=stored.topic,
        code=stored.code,
        reason=stored.reason,
        at=stored.at,
        partition=stored.partition,
        raw=message.value,
        headers=message.headers or {},
        **{name: getattr(message, name) for name in _OF_MESSAGE},
    )
