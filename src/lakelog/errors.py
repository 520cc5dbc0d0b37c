"""Every error that Lakelog raises, in the engine, over HTTP and in the client alike.

    LakelogError
    ├── InvalidRequest            what was asked can never work as asked
    │   ├── InvalidName
    │   ├── InvalidBatch
    │   ├── UnsupportedFormat
    │   ├── InvalidFilter
    │   └── TooLarge
    ├── NotAuthenticated
    ├── NotAllowed
    ├── NotFound
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── GroupNotFound
    │   ├── ObjectNotFound
    │   ├── DeadLetterNotFound
    │   └── PipelineRunNotFound
    ├── Conflict                  a definite refusal; nothing was written
    │   ├── TopicExists
    │   ├── IdempotencyConflict
    │   ├── SequenceRefused
    │   ├── EpochChanged
    │   ├── LeaseLost             somebody else may be working on the message
    │   ├── NotOwner
    │   ├── OutOfOrder
    │   ├── StaleGeneration
    │   ├── UnknownMember
    │   ├── GroupKindDiffers
    │   ├── GroupSettingsDiffer
    │   ├── GroupBusy
    │   ├── NoPosition
    │   ├── PositionRefused
    │   ├── RedriveRefused
    │   ├── PipelineBusy
    │   └── PipelineRunOver
    ├── OffsetOutOfRange
    ├── Overloaded                try again after `retry_after` seconds
    ├── Unavailable               nothing was written; try again
    │   └── ObjectStoreUnavailable
    ├── SegmentDamaged            a cold segment is not what was sealed
    ├── OutcomeUnknown            it may or may not have been written
    ├── PartlyPublished           some of several messages were not published; `results` says which
    ├── ConfigurationError        the installation has to be mended first
    │   ├── NotDurable
    │   └── SchemaOutOfDate
    └── Closed

This module decides nothing about HTTP: the status of each code stands in `lakelog.wire.problems`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

Subject = str | int | float | bool | None


class LakelogError(Exception):
    """Something went wrong in Lakelog."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None, **subject: Subject) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip().splitlines()[0]
        self.subject = subject
        super().__init__(self.detail)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.detail, self.subject))

    def __getattr__(self, name: str) -> Subject:
        # Only called when the attribute is missing, so `error.topic` works for whatever the subject carries.
        subject = self.__dict__.get("subject")
        if subject is not None and name in subject:
            return subject[name]  # type: ignore[no-any-return]
        raise AttributeError(name)


def _rebuild(kind: type[LakelogError], detail: str, subject: dict[str, Subject]) -> LakelogError:
    return kind(detail, **subject)


class InvalidRequest(LakelogError):
    """The request is not valid; the detail says which part, and what is accepted."""

    code = "invalid_request"


class InvalidName(InvalidRequest):
    """Names are 1 to 120 of the characters a-z, 0-9, dot, underscore and hyphen."""

    code = "invalid_name"


class InvalidBatch(InvalidRequest):
    """The Arrow body is not a valid batch of messages."""

    code = "invalid_batch"


class UnsupportedFormat(InvalidRequest):
    """These bytes have a format number that this version does not know; upgrade Lakelog."""

    code = "unsupported_format"


class InvalidFilter(InvalidRequest):
    """The filter cannot be read; the detail says where, and what is accepted there."""

    code = "invalid_filter"


class TooLarge(InvalidRequest):
    """The message, batch or body is over its limit; split it, or publish the address of where it is stored."""

    code = "too_large"


class NotAuthenticated(LakelogError):
    """A valid token is needed; make one with `lakelog tokens create`."""

    code = "not_authenticated"


class NotAllowed(LakelogError):
    """This token does not have the right that the call needs."""

    code = "not_allowed"


class NotFound(LakelogError):
    """There is nothing of that name."""

    code = "not_found"


class TopicNotFound(NotFound):
    """There is no such topic; create it with `lakelog topics create`."""

    code = "topic_not_found"


class PartitionNotFound(NotFound):
    """The topic has no such partition."""

    code = "partition_not_found"


class GroupNotFound(NotFound):
    """There is no such group; it is made when its first member joins or consumes."""

    code = "group_not_found"


class ObjectNotFound(NotFound):
    """The object store has no such object."""

    code = "object_not_found"


class DeadLetterNotFound(NotFound):
    """The group has no such dead letter; `lakelog dead list` shows those it has."""

    code = "dead_letter_not_found"


class PipelineRunNotFound(NotFound):
    """There is no such run of a pipeline; `lakelog pipelines runs` shows those that are remembered."""

    code = "pipeline_run_not_found"


class Conflict(LakelogError):
    """The call does not fit the present state; nothing was written."""

    code = "conflict"


class TopicExists(Conflict):
    """A topic of that name exists already."""

    code = "topic_exists"


class IdempotencyConflict(Conflict):
    """That idempotency key was used for another body; use a new key for a new message."""

    code = "idempotency_conflict"


class SequenceRefused(Conflict):
    """The producer's sequence does not continue what this partition has seen; begin with a new producer id."""

    code = "sequence_refused"


class EpochChanged(Conflict):
    """Partitions were added to the topic; read its description again and choose the partitions anew."""

    code = "epoch_changed"
    retryable = True


class LeaseLost(Conflict):
    """The lease is over, and nothing was changed: somebody else may be working on the message. Drop its result."""

    code = "lease_lost"


class NotOwner(Conflict):
    """The message is leased to another owner; nothing was changed."""

    code = "not_owner"


class OutOfOrder(Conflict):
    """An earlier message of the same key is still open; answer that one first."""

    code = "out_of_order"


class StaleGeneration(Conflict):
    """The group's members have changed since; heartbeat or join again, and use the generation of the answer."""

    code = "stale_generation"


class UnknownMember(Conflict):
    """The group does not have this member, or no longer: join again."""

    code = "unknown_member"


class GroupKindDiffers(Conflict):
    """The group is of the other kind (lease or cursor), and that is fixed; use another group."""

    code = "group_kind_differs"


class GroupSettingsDiffer(Conflict):
    """The group has other settings than the caller wants; change either."""

    code = "group_settings_differ"


class GroupBusy(Conflict):
    """The group has members; stop them first."""

    code = "group_busy"


class NoPosition(Conflict):
    """The group has no position in the topic, and is not to choose one; give it one with `lakelog groups seek`."""

    code = "no_position"


class PositionRefused(Conflict):
    """The position does not follow the group's present one; read it again."""

    code = "position_refused"


class RedriveRefused(Conflict):
    """The dead letter was redriven or discarded already, or too often; the detail says which."""

    code = "redrive_refused"


class PipelineBusy(Conflict):
    """Another run of this pipeline is going on; wait for its end, or stop it. `lakelog pipelines runs` shows it."""

    code = "pipeline_busy"


class PipelineRunOver(Conflict):
    """The run has ended, or was taken for lost and another may have begun; what it did stays valid. Begin a new one."""

    code = "pipeline_run_over"


class OffsetOutOfRange(LakelogError):
    """The offset is below the log start or above the high watermark."""

    code = "offset_out_of_range"


class Overloaded(LakelogError):
    """The server has as much in hand as it may; try again after the time given."""

    code = "overloaded"
    retryable = True


class Unavailable(LakelogError):
    """PostgreSQL or the server cannot be reached; nothing was written, try again."""

    code = "unavailable"
    retryable = True


class ObjectStoreUnavailable(Unavailable):
    """The object store cannot be reached, or does not answer as it should; try again."""

    code = "object_store_unavailable"


class SegmentDamaged(LakelogError):
    """A cold segment is not what was sealed; nothing of it was used."""

    code = "segment_damaged"


class OutcomeUnknown(LakelogError):
    """The answer was lost: it may or may not have been written. Repeat it with the same idempotency key or sequence."""

    code = "outcome_unknown"
    retryable = True

    @classmethod
    def after(cls, error: LakelogError) -> OutcomeUnknown:
        """An earlier try may have been written, so that a later refusal proves nothing."""
        return (
            error if isinstance(error, cls) else cls(f"An answer was lost, and then: {error.detail}", **error.subject)
        )


class PartlyPublished(LakelogError):
    """Some of these messages were not published; `results` has what became of each."""

    code = "partly_published"

    def __init__(self, detail: str | None = None, results: Sequence[object] = (), **subject: Subject) -> None:
        super().__init__(detail, **subject)
        self.results = list(results)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.detail, self.results))


class ConfigurationError(LakelogError):
    """The installation cannot work as it is configured."""

    code = "configuration"


class NotDurable(ConfigurationError):
    """PostgreSQL would lose acknowledged messages with these settings."""

    code = "not_durable"


class SchemaOutOfDate(ConfigurationError):
    """The database's schema does not fit this version; run `lakelog migrate`."""

    code = "schema_out_of_date"


class Closed(LakelogError):
    """This client, producer or engine was closed."""

    code = "closed"


def first_line(error: BaseException, most: int = 200) -> str:
    """What an error says, short enough for a line of our own; its kind, if it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip()[:most]


def lack_of_memory(error: BaseException) -> MemoryError | None:
    """What is not the fault of what was read or written. Arrow's codecs say it as an error of input and output."""
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return MemoryError(first_line(error))
    return None


def all_errors(root: type[LakelogError] = LakelogError) -> list[type[LakelogError]]:
    """Every class of the tree, the root first."""
    found = [root]
    for child in root.__subclasses__():
        found.extend(all_errors(child))
    return found
