"""Incidents: deliveries that did not end well, and the end of messages that had one.

A message that is acked at its first delivery has none. `lakelog.model.message_story` tells them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

KEPT = timedelta(days=30)
"""How long incidents are kept at least. They are dropped by the day."""
MAX_PER_SECOND = 1000
"""The most incidents that a process stores for a group in a second. It counts the others, and stores every death."""
MAX_INCIDENT_TRACEBACK = 4096


class IncidentKind(IntEnum):
    """The end of a delivery. The numbers are stored."""

    FAILED = 1
    """The owner reported a failure, and the message waits for the next attempt."""
    TIMED_OUT = 2
    """The same, because the handler exceeded `ack_timeout`."""
    LOST = 3
    """The lease ended without an answer."""
    DEAD = 4
    """The message became a dead letter."""
    ACKED = 5
    """A message that had failed or been lost before was acked."""
    DISCARDED = 6
    """A message was discarded that had failed or been lost before, or whose group keeps no dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The end of one delivery. Times are milliseconds since 1970 on the database's clock.

    Attributes:
        kind: How the delivery ended.
        offset: The offset of the message.
        epoch: The position epoch of the group.
        deliveries: The number of this delivery, from 1.
        failures: How often the message has failed, this time included.
        owner: The consumer that had the message.
        leased_ms: When it got the message.
        due_ms: When the next attempt is due; None if there is none, or if the time is not known.
        reason: The reason that the owner gave.
        traceback: The traceback that the owner sent; None if it sent none.
        fingerprint: The fingerprint of the reason and the traceback; 0 until it is known, and if nothing failed.
        left_out: How many incidents of the group were counted and not stored since the last one that was stored.
    """

    kind: IncidentKind
    offset: int
    epoch: int
    deliveries: int
    failures: int
    owner: str
    leased_ms: int
    due_ms: int | None = None
    reason: str = ""
    traceback: str | None = None
    fingerprint: int = 0
    left_out: int = 0
