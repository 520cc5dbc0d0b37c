"""Every error that Lakelog raises in the engine, over HTTP and in the client.

    LakelogError
    ├── InvalidRequest            the same call can never succeed
    │   ├── InvalidName
    │   ├── InvalidBatch
    │   ├── UnsupportedFormat
    │   ├── InvalidFilter
    │   ├── InvalidSchema
    │   ├── SchemaViolation       a value does not match the topic's schema
    │   └── TooLarge
    ├── NotAuthenticated
    ├── NotAllowed
    ├── NotFound
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── GroupNotFound
    │   ├── ObjectNotFound
    │   ├── DeadLetterNotFound
    │   ├── PipelineRunNotFound
    │   └── SchemaNotFound
    ├── Conflict                  a definite refusal: nothing was written
    │   ├── TopicExists
    │   ├── IdempotencyConflict
    │   ├── SequenceRefused
    │   ├── EpochChanged
    │   ├── LeaseLost             another worker may have the message
    │   ├── OutcomeForgotten      a repeat that came too late to be recognized
    │   ├── NotOwner
    │   ├── OutOfOrder
    │   ├── NotAssigned
    │   ├── StaleGeneration
    │   ├── UnknownMember
    │   ├── GroupKindDiffers
    │   ├── GroupSettingsDiffer
    │   ├── GroupBusy
    │   ├── NoPosition
    │   ├── PositionRefused
    │   ├── RedriveRefused
    │   ├── PipelineBusy
    │   ├── PipelineRunOver
    │   └── SchemaIncompatible
    ├── OffsetOutOfRange
    ├── Overloaded                retry after `retry_after` seconds
    ├── Unavailable               nothing was written: retry
    │   └── ObjectStoreUnavailable
    ├── SegmentDamaged            a cold segment differs from what was sealed
    ├── OutcomeUnknown            the call may or may not have taken effect
    ├── PartlyPublished           some messages were not published: see `results`
    ├── ConfigurationError        the installation must be changed first
    │   ├── NotDurable
    │   └── SchemaOutOfDate
    └── Closed

This module does not know HTTP: `lakelog.wire.problems` maps each error to a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

Subject = str | int | float | bool | None


class LakelogError(Exception):
    """Something went wrong in Lakelog.

    Args:
        detail: The problem and what to do. Default: the first line of the class's docstring.
        subject: The things that the error concerns, by name. Each is an attribute too, such as `error.topic`.

    Attributes:
        code: The stable name of the error, the same in all versions and over HTTP.
        retryable: Whether the same call can succeed later.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None, **subject: Subject) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip().splitlines()[0]
        self.subject = subject
        super().__init__(self.detail)

    def of_message(self, index: int) -> LakelogError:
        """Return the same error, naming the message that it concerns.

        Args:
            index: The position of the message among several, starting at 0.
        """
        return _rebuild(type(self), f"Message {index}: {self.detail}", {**self.subject, "index": index})

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.detail, self.subject))

    def __getattr__(self, name: str) -> Subject:
        # Only called when the attribute is missing, so that `error.topic` works for every name in the subject.
        subject = self.__dict__.get("subject")
        if subject is not None and name in subject:
            return subject[name]  # type: ignore[no-any-return]
        raise AttributeError(name)


def _rebuild(kind: type[LakelogError], detail: str, subject: dict[str, Subject]) -> LakelogError:
    return kind(detail, **subject)


class InvalidRequest(LakelogError):
    """The request is not valid. The detail says which part, and what is accepted."""

    code = "invalid_request"


class InvalidName(InvalidRequest):
    """Names are 1 to 120 of the characters a-z, 0-9, dot, underscore and hyphen."""

    code = "invalid_name"


class InvalidBatch(InvalidRequest):
    """The Arrow body is not a valid batch of messages."""

    code = "invalid_batch"


class UnsupportedFormat(InvalidRequest):
    """The bytes have a format number that this version does not know. Upgrade Lakelog."""

    code = "unsupported_format"


class InvalidFilter(InvalidRequest):
    """The filter cannot be parsed. The detail says where, and what is accepted there."""

    code = "invalid_filter"


class InvalidSchema(InvalidRequest):
    """The JSON Schema is not accepted. The detail says why."""

    code = "invalid_schema"


class SchemaViolation(InvalidRequest):
    """A value does not match the schema of its topic. It was not written.

    Its subject has the `topic`, the `field` as a JSON Pointer, the `rule`, the `schema_version`, and the `index` of the
    message among several.
    """

    code = "schema_violation"

    def of_message(self, index: int) -> LakelogError:
        """Return the same error, naming the message that it concerns, unless it names one already.

        Args:
            index: The position of the message among several, starting at 0.
        """
        # A refused batch has one error for all of its messages, which names the wrong one.
        return self if "index" in self.subject else super().of_message(index)

    def moved(self, places: Sequence[int]) -> LakelogError:
        """Return the error for a caller whose message has another index.

        Args:
            places: The index that the caller knows, for each message of the batch that was refused.
        """
        index = self.subject.get("index")
        if not isinstance(index, int) or index >= len(places) or places[index] == index:
            return self
        subject = {name: value for name, value in self.subject.items() if name != "index"}
        return SchemaViolation(self.detail.removeprefix(f"Message {index}: "), **subject).of_message(places[index])


class TooLarge(InvalidRequest):
    """A message, batch or body exceeds its limit. Split it, or store the data elsewhere and publish its address."""

    code = "too_large"


class NotAuthenticated(LakelogError):
    """A valid token is needed. Create one with `lakelog tokens create`."""

    code = "not_authenticated"


class NotAllowed(LakelogError):
    """This token does not have the right that the call needs."""

    code = "not_allowed"


class NotFound(LakelogError):
    """Nothing with this name exists."""

    code = "not_found"


class TopicNotFound(NotFound):
    """The topic does not exist. Create it with `lakelog topics create`."""

    code = "topic_not_found"


class PartitionNotFound(NotFound):
    """The topic does not have this partition. `lakelog topics describe` lists its partitions."""

    code = "partition_not_found"


class GroupNotFound(NotFound):
    """The group does not exist. It is created when its first member joins or consumes."""

    code = "group_not_found"


class ObjectNotFound(NotFound):
    """The object does not exist in the object store."""

    code = "object_not_found"


class DeadLetterNotFound(NotFound):
    """The group does not have this dead letter. `lakelog dead list` shows its dead letters."""

    code = "dead_letter_not_found"


class PipelineRunNotFound(NotFound):
    """The pipeline run does not exist. `lakelog pipelines runs` lists recent runs."""

    code = "pipeline_run_not_found"


class SchemaNotFound(NotFound):
    """The topic has no schema, or not this version of it. Set one with `lakelog topics schema set`."""

    code = "schema_not_found"


class Conflict(LakelogError):
    """The call conflicts with the current state. Nothing was written."""

    code = "conflict"


class TopicExists(Conflict):
    """A topic with this name already exists."""

    code = "topic_exists"


class IdempotencyConflict(Conflict):
    """The idempotency key was used for another message. Use a new key for a new message."""

    code = "idempotency_conflict"


class SequenceRefused(Conflict):
    """The sequence number does not follow the last one of this producer and partition. Use a new producer id."""

    code = "sequence_refused"


class EpochChanged(Conflict):
    """Partitions were added to the topic. Read its description and choose the partitions again."""

    code = "epoch_changed"
    retryable = True


class LeaseLost(Conflict):
    """The lease has ended, and nothing was changed. Another worker may have the message: drop the result."""

    code = "lease_lost"


class OutcomeForgotten(Conflict):
    """The lease has ended, and its outcome is no longer remembered. This call changed nothing."""

    code = "outcome_forgotten"


class NotOwner(Conflict):
    """The message is leased to another owner. Nothing was changed."""

    code = "not_owner"


class OutOfOrder(Conflict):
    """An earlier message of the same key has no answer yet. Answer it first."""

    code = "out_of_order"


class NotAssigned(Conflict):
    """The partition is not assigned to this consumer."""

    code = "not_assigned"


class StaleGeneration(Conflict):
    """The members of the group have changed. Heartbeat or join again, and use the generation of the response."""

    code = "stale_generation"


class UnknownMember(Conflict):
    """The group does not have this member. Join again."""

    code = "unknown_member"


class GroupKindDiffers(Conflict):
    """The group is of the other kind (lease or cursor), which cannot be changed. Use another group."""

    code = "group_kind_differs"


class GroupSettingsDiffer(Conflict):
    """The group's settings differ from those of the caller. Change the caller or the group."""

    code = "group_settings_differ"


class GroupBusy(Conflict):
    """The group has members. Stop them first."""

    code = "group_busy"


class NoPosition(Conflict):
    """The group has no position in the topic and must not choose one. Set it with `lakelog groups seek`."""

    code = "no_position"


class PositionRefused(Conflict):
    """The position does not follow the group's current position. Read the current position and retry."""

    code = "position_refused"


class RedriveRefused(Conflict):
    """The dead letter was already redriven or discarded, or was redriven too often. The detail says which."""

    code = "redrive_refused"


class PipelineBusy(Conflict):
    """Another run of this pipeline is active. Wait until it ends, or stop it. `lakelog pipelines runs` shows it."""

    code = "pipeline_busy"


class PipelineRunOver(Conflict):
    """The run has ended or was declared lost. Its results stay valid. Start a new run."""

    code = "pipeline_run_over"


class SchemaIncompatible(Conflict):
    """The new schema breaks the compatibility that the topic demands. Nothing was changed."""

    code = "schema_incompatible"


class OffsetOutOfRange(LakelogError):
    """The offset is below the log start or above the high watermark."""

    code = "offset_out_of_range"


class Overloaded(LakelogError):
    """The server is at capacity. Retry after `retry_after` seconds."""

    code = "overloaded"
    retryable = True


class Unavailable(LakelogError):
    """PostgreSQL or the server is unreachable. Nothing was written. Retry."""

    code = "unavailable"
    retryable = True


class ObjectStoreUnavailable(Unavailable):
    """The object store is unreachable or returned an unexpected response. Retry."""

    code = "object_store_unavailable"


class SegmentDamaged(LakelogError):
    """A cold segment is damaged: its content differs from what was written. None of it was used."""

    code = "segment_damaged"


class OutcomeUnknown(LakelogError):
    """The response was lost: the call may or may not have taken effect. Repeat it with the same idempotency key."""

    code = "outcome_unknown"
    retryable = True

    @classmethod
    def after(cls, error: LakelogError) -> OutcomeUnknown:
        """Return the error for a call that was refused after an earlier attempt whose response was lost.

        Args:
            error: The error of the last attempt. The earlier attempt may have taken effect nevertheless.
        """
        return (
            error
            if isinstance(error, cls)
            else cls(f"A response was lost, and the retry failed: {error.detail}", **error.subject)
        )


class PartlyPublished(LakelogError):
    """Some messages were not published. `results` has the outcome of each.

    Args:
        detail: The number of messages that were not published, and the error of the first one.
        results: A `Receipt` or an error for each message, in order.
        subject: The things that the error concerns, by name.
    """

    code = "partly_published"

    def __init__(self, detail: str | None = None, results: Sequence[object] = (), **subject: Subject) -> None:
        super().__init__(detail, **subject)
        self.results = list(results)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.detail, self.results))


class ConfigurationError(LakelogError):
    """The configuration is not valid. The detail says what to change."""

    code = "configuration"


class NotDurable(ConfigurationError):
    """PostgreSQL can lose acknowledged messages with its current settings."""

    code = "not_durable"


class SchemaOutOfDate(ConfigurationError):
    """The database schema does not match this version. Run `lakelog migrate`."""

    code = "schema_out_of_date"


class Closed(LakelogError):
    """The client, producer or engine is closed."""

    code = "closed"


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of an error's message, at most `most` characters; its class name if it has none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip()[:most]


def lack_of_memory(error: BaseException) -> MemoryError | None:
    """Return a MemoryError if the error means that memory ran out; Arrow's codecs report it as an I/O error."""
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return MemoryError(first_line(error))
    return None


def all_errors(root: type[LakelogError] = LakelogError) -> list[type[LakelogError]]:
    """Return every error class of the tree, the root first."""
    found = [root]
    for child in root.__subclasses__():
        found.extend(all_errors(child))
    return found
