"""Messages as readers get them. A value is decoded when first used. `decoding` builds them from stored batches."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from lakelog.client.publishing.codec import Codec
from lakelog.model.message import message_id
from lakelog.model.times import EPOCH

T = TypeVar("T")

_UNSET = msgspec.UNSET
_set = msgspec.structs.force_setattr


def _proxy(headers: dict[str, str]) -> MappingProxyType[str, str]:
    return MappingProxyType(headers)


# Messages go to other processes too, and Python does not pickle this type by itself.
copyreg.pickle(MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))


# gc=False: half a million of these a second would keep the collector busy. They hold bytes, text and a codec, which
# cannot refer back to them; only a caller who hangs a message into its own decoded value makes a cycle.
class ReceivedMessage(msgspec.Struct, Generic[T], frozen=True, gc=False, eq=False):
    """A message that was read from the log.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        offset: The offset in the partition.
        key: The key as bytes, or None.
        raw: The value as stored bytes, or None for a message without a value.
        headers: Text by name; empty if the message has no headers.
        content_type: The content type of `raw`, or None.
        correlation_id: The text that the publisher gave, or None.
        idempotency_key: The idempotency key that the publisher gave, or None.
        appended_at: When the message was appended to the log, in UTC.
        lineage: For a redriven message, `<id>#<n>`: the id of the message that was first published, and the number of
            redrives since. None for any other message.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    raw: bytes | None
    headers: Mapping[str, str]
    content_type: str | None
    correlation_id: str | None
    idempotency_key: str | None
    appended_at: datetime
    _created: int | None
    _expires: int | None
    _incarnation: int
    _codec: Codec[T]
    lineage: str | None = None
    _value: Any = msgspec.UNSET

    @property
    def id(self) -> str:
        """The id of the message, which is never reused."""
        return message_id(self._incarnation, self.partition, self.offset)

    @property
    def value(self) -> T:
        """The value, decoded by the topic's type or the content type when it is first read.

        A value that cannot be decoded raises `InvalidRequest`.
        """
        value = self._value
        if value is _UNSET:
            value = self._codec.decode(self.raw, self.content_type)
            _set(self, "_value", value)
        return value  # type: ignore[no-any-return]

    @property
    def key_text(self) -> str | None:
        """The key as text, with replacement characters where it is not UTF-8; None if there is no key."""
        return None if self.key is None else self.key.decode(errors="replace")

    @property
    def created_at(self) -> datetime | None:
        """When the publisher created the message, in UTC; None if the publisher did not set it."""
        return None if self._created is None else EPOCH + timedelta(microseconds=self._created)

    @property
    def expires_at(self) -> datetime | None:
        """When the message expires, in UTC; None if it does not expire."""
        return None if self._expires is None else EPOCH + timedelta(microseconds=self._expires)

    def __repr__(self) -> str:
        size = None if self.raw is None else len(self.raw)
        return f"ReceivedMessage(id={self.id!r}, topic={self.topic!r}, key={self.key!r}, bytes={size})"
