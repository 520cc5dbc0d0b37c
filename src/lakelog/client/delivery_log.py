"""The logger of a delivery: each line names the message, in the text and as fields for structured logs."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.client.consumer.core import HeldMessage

_log = logging.getLogger("lakelog.delivery")


class DeliveryLog(logging.LoggerAdapter[logging.Logger]):
    """Logs to `lakelog.delivery`. Lines begin with the message, and records have its fields.

    The fields are `topic`, `partition`, `offset`, `group`, `attempt` and `message_id`. A consumer without a group, and
    a handler on Spark, have no field `group`.
    """

    def __init__(self, held: HeldMessage) -> None:
        """Create the logger of a held message."""
        message = held.message
        self._place = f"{message.topic}/{held.group}" if held.group else message.topic
        self._place += f" message {message.partition}:{message.offset} (attempt {held.attempt})"
        fields: dict[str, object] = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "attempt": held.attempt,
            "message_id": message.id,
        }
        super().__init__(_log, fields | ({"group": held.group} if held.group else {}))

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the line with the message in front, and the arguments with its fields.

        Args:
            msg: The line, or its format.
            kwargs: The arguments of the call. Fields in `extra` go before those of the message.
        """
        fields = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        # Names cannot contain a percent sign, so the place is safe in front of a format.
        return f"{self._place}: {msg}", {**kwargs, "extra": fields}
