"""Partition stops: why a group does not continue in one partition, and when it is tried again.

A damaged file, a journal event of a newer version or a defect concerns one group in one partition. Delivery stops there
for a while; other groups and partitions continue. An unresponsive database is not a stop: it concerns all of its
partitions.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from lakelog.errors import LakelogError, ObjectStoreUnavailable, OutcomeUnknown, TopicNotFound, Unavailable
from lakelog.reporting import log_event

PAUSE_SECONDS = 5.0
RETRYABLE_PAUSE_SECONDS = 1.0
"""The pause after a temporary error, such as an unresponsive object store."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStop:
    """The last error of a group in a partition, and when it happened by the clock of the partition's cell."""

    error: LakelogError
    at_ms: int
    until: float
    """No messages are delivered before this time of the process's monotonic clock."""

    def is_over(self) -> bool:
        return time.monotonic() >= self.until


def concerns_one_partition(error: LakelogError) -> bool:
    """Return whether other partitions of the same cell and topic can still be read and decided."""
    if isinstance(error, ObjectStoreUnavailable):
        return True
    return not isinstance(error, (Unavailable, OutcomeUnknown, TopicNotFound))


def stop_after(error: LakelogError, at_ms: int) -> PartitionStop:
    """Return a stop that begins now."""
    pause = RETRYABLE_PAUSE_SECONDS if error.retryable else PAUSE_SECONDS
    return PartitionStop(error=error, at_ms=at_ms, until=time.monotonic() + pause)


def as_error(error: Exception) -> LakelogError:
    """Return a Lakelog error unchanged. For any other exception, log the traceback and return an internal error."""
    if isinstance(error, LakelogError):
        return error
    log_event(_log, logging.ERROR, "decision_failed", f"A decision for a group failed: {error!r}", error)
    return LakelogError(f"The decision failed: {error!r}.")
