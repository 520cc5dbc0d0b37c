"""The settings of a producer, and checks of its messages. The producer itself is in `_async/producer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakelog.client.functions import check_function
from lakelog.client.processes import log
from lakelog.client.publishing.codec import absolute_expiry, check_partition
from lakelog.errors import LakelogError, TooLarge
from lakelog.model import limits
from lakelog.model.arguments import check_whole
from lakelog.model.message import Message, fault_of_texts

OnError = Callable[[LakelogError, Sequence[Message]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How much a producer buffers, how long it lingers, and when it gives up a batch."""

    max_batch: int = limits.MAX_BATCH_MESSAGES
    linger_seconds: float = 0.005
    max_buffer_bytes: int = 32 << 20
    give_up_seconds: float = 120.0
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        check_whole("max_batch", self.max_batch, 1, limits.MAX_BATCH_MESSAGES)
        check_whole("max_buffer_bytes", self.max_buffer_bytes, 1)
        if self.on_error is not None:
            check_function("on_error", self.on_error, ("error", "messages"))

    def report(self, error: LakelogError, messages: Sequence[Message]) -> None:
        """Call `on_error` with messages that were not published. Its exceptions are logged."""
        if self.on_error is not None:
            try:
                self.on_error(error, messages)
            except Exception:
                log.exception("on_error of a producer failed")


def check_size(raw: bytes | None, key: bytes | None) -> None:
    """Raise if a value or a key is too large."""
    if raw is not None and len(raw) > limits.MAX_MESSAGE_BYTES:
        raise TooLarge(f"The value has {len(raw)} bytes; at most {limits.MAX_MESSAGE_BYTES} are allowed.")
    if key is not None and len(key) > limits.MAX_KEY_BYTES:
        raise TooLarge(f"The key has {len(key)} bytes; at most {limits.MAX_KEY_BYTES} are allowed.")


Extras = tuple[Mapping[str, str] | None, str | None, datetime | None, int | None]


def extras_of(
    headers: Mapping[str, str] | None,
    partition: int | None,
    correlation_id: str | None,
    content_type: str | None,
    expires: datetime | None,
) -> Extras:
    check_partition(partition)
    fault = fault_of_texts(headers, correlation_id, content_type)
    if fault is not None:
        raise fault
    return (dict(headers) if headers else None, correlation_id, absolute_expiry(expires), partition)
