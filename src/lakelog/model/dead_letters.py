"""Dead letters: one value each, and the requests to list, redrive, discard and purge them.

The engine decides what the requests do. The JSON of a dead letter, which shows its key and value, is in
`lakelog.wire.dead_letter_shapes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType, field
from msgspec.structs import force_setattr

from lakelog.errors import InvalidRequest
from lakelog.model.filter_parser import MAX_LENGTH as MAX_FILTER_LENGTH
from lakelog.model.json_values import stored_value
from lakelog.model.kinds import DeadLetterState
from lakelog.model.limits import MAX_DURATION_MS
from lakelog.model.structs import MessageId, Name, PartitionNumber, Request, Value

MAX_DEAD_LETTERS = 10_000
"""The most dead letters that one call redrives, discards or purges."""
MAX_DEAD_LETTER_PAGE = 1000
DEFAULT_MAX_REDRIVES = 3

Filter = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_FILTER_LENGTH})]
"""A filter of dead letters. Its parser enforces the length, with an error of its own."""
ClusterId = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
"""The fingerprint of a cluster of dead letters."""
Limit = Annotated[int, Meta(ge=1, le=MAX_DEAD_LETTERS)]


class DeadLetter(Value, frozen=True, kw_only=True):
    """A message that a group could not process, with the reason.

    Attributes:
        id: The id of the message.
        topic: The topic of the message.
        partition: The partition of the message.
        offset: The offset of the message in its partition.
        error: The reason of the last failure.
        deliveries: How often the message was delivered.
        failures: How often the message failed.
        at: When the message became a dead letter.
        owner: The consumer that had the message last.
        state: "dead", "redriven" or "discarded".
        key: The key, as bytes; None if the message has none.
        raw: The value, as bytes; None if the message has no value.
        headers: The headers, text by name.
        content_type: The content type of the value.
        correlation_id: The correlation id that the publisher gave; None if it gave none.
        created_at: When the publisher created the message.
        expires_at: When the message expires; None if it does not.
        idempotency_key: The idempotency key that the publisher gave; None if it gave none.
        epoch: The position epoch in which the message died.
        lineage: The id of the first published message and the number of redrives; None if it was never redriven.
        redriven_to: The id of the message that was published for the dead letter.
        traceback: The traceback of the last failure, at most 8 KiB; None if the worker sent none.
        without_message: Whether the message could not be read when it died, so that only its position is known.
    """

    id: str
    topic: str
    partition: int
    offset: int
    error: str
    deliveries: int
    failures: int
    at: datetime
    owner: str
    state: DeadLetterState
    key: bytes | None = None
    raw: bytes | None = None
    headers: Mapping[str, str] = {}
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    epoch: int = 0
    lineage: str | None = None
    redriven_to: str | None = None
    traceback: str | None = None
    without_message: bool = False


class DeadLetterQuery(Request, frozen=True, kw_only=True):
    """Which dead letters of a group to list."""

    group: Name
    topic: Annotated[Name, Meta(description="Only dead letters of this topic.")] | None = None
    partition: Annotated[PartitionNumber, Meta(description="Only dead letters of this partition.")] | None = None
    where: Annotated[Filter, Meta(description="Only dead letters that this filter selects.")] | None = None
    fingerprint: Annotated[ClusterId, Meta(description="Only dead letters of this cluster.")] | None = None
    state: Annotated[
        str, Meta(description="The state of dead letters.", extra_json_schema={"enum": list(DeadLetterState)})
    ] = "dead"
    after: Annotated[str, Meta(max_length=120, description="The `next` of the previous page.")] | None = None
    limit: Annotated[
        int, Meta(ge=1, le=MAX_DEAD_LETTER_PAGE, description="The largest number of dead letters to return.")
    ] = 100

    def __post_init__(self) -> None:
        if self.state not in list(DeadLetterState):
            known = ", ".join(f"'{state}'" for state in DeadLetterState)
            raise InvalidRequest(f"`state` must be one of {known}, not {self.state!r}.")


class DeadLetterPage(Value, frozen=True, kw_only=True):
    """A page of dead letters, which may be empty although there are more.

    Attributes:
        letters: The dead letters.
        next: The value of `after` for the next page; None if there is none.
    """

    letters: Sequence[DeadLetter]
    next: str | None = None


class DeadLetterRequest(Request, frozen=True, kw_only=True):
    """A dead letter of a group, to describe or to discard."""

    group: Name
    message_id: MessageId


class Repair(Request, frozen=True, kw_only=True):
    """A new value, new headers, or both, to publish instead of the dead letter's own. The key never changes.

    Attributes:
        value: The new value, as bytes; None keeps the current value.
        shown: The new value as JSON or text, which becomes `value`: HTTP callers send it as `value`.
        content_type: The content type of the new value; None keeps the current one.
        headers: The new headers; None keeps the current headers.
    """

    value: bytes | None = field(default=None, name="value_base64")
    shown: Raw | UnsetType = field(default=UNSET, name="value")
    content_type: str | None = None
    headers: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.shown is not UNSET:
            if self.value is not None:
                raise InvalidRequest("Give `value` or `value_base64`, not both.")
            value, content_type = stored_value(bytes(self.shown), self.content_type)
            force_setattr(self, "value", value)
            force_setattr(self, "content_type", content_type)
            force_setattr(self, "shown", UNSET)
        if self.value is None and self.headers is None:
            raise InvalidRequest(
                "A repaired message needs a value or headers. Discard the dead letter if you do not want it."
            )


class DeadLetterSelection(Request, frozen=True, kw_only=True):
    """The dead letters of a group with these ids, or those of a topic (or all), a cluster (or all) and a filter."""

    group: Name
    message_ids: Annotated[tuple[MessageId, ...], Meta(min_length=1, max_length=MAX_DEAD_LETTERS)] | None = None
    topic: Name | None = None
    where: Filter | None = None
    fingerprint: ClusterId | None = None
    limit: Limit = MAX_DEAD_LETTERS

    def __post_init__(self) -> None:
        if self.message_ids is not None and (self.topic, self.where, self.fingerprint) != (None, None, None):
            raise InvalidRequest("Name dead letters by their ids, or by a topic, a cluster and a filter, not both.")


class RedriveRequest(DeadLetterSelection, frozen=True, kw_only=True):
    """Publish dead letters again for their group.

    Attributes:
        group: The name of the group.
        message_ids: The ids of dead letters.
        topic: Without ids: the only topic. Default: all.
        where: Without ids: a filter.
        fingerprint: Without ids: the fingerprint of a cluster.
        limit: The most dead letters to redrive. Those that are refused do not count.
        dry_run: Whether to return what would be done, and publish nothing.
        force: Whether to redrive messages that were already redriven `max_redrives` times.
        max_redrives: Without `force`, a message that was redriven this many times is refused.
        repaired: Changes by id. Without any other selection, exactly these dead letters are redriven.
    """

    dry_run: bool = False
    force: bool = False
    max_redrives: Annotated[int, Meta(ge=0, le=1_000_000)] = DEFAULT_MAX_REDRIVES
    repaired: Mapping[str, Repair] | None = field(default=None, name="values")


class RetryRequest(DeadLetterRequest, frozen=True, kw_only=True):
    """Publish one dead letter again for its group. `force` and `repaired` are those of a redrive."""

    force: bool = False
    repaired: Repair | None = None


class RefusedDeadLetter(Value, frozen=True, kw_only=True):
    """A dead letter that could not be redriven.

    Attributes:
        id: The id of the message.
        reason: Why the dead letter was refused.
    """

    id: str
    reason: str


class Redriven(Value, frozen=True, kw_only=True):
    """The result of a redrive, or of a dry run.

    Attributes:
        dry_run: True if this was a dry run, which publishes nothing.
        redriven: Dead letters that were published again.
        refused: Dead letters that could not be redriven.
        ids: The first ids of redriven dead letters.
        refusals: The first refused dead letters, each with the reason.
        has_more: True if the limit was reached. Repeat the call for the rest.
    """

    dry_run: bool = False
    redriven: int = 0
    refused: int = 0
    ids: tuple[str, ...] = ()
    refusals: tuple[RefusedDeadLetter, ...] = ()
    has_more: bool = False


class DiscardRequest(DeadLetterSelection, frozen=True, kw_only=True):
    """Discard dead letters. They stay listed as discarded."""


class DiscardedDeadLetters(Value, frozen=True, kw_only=True):
    """The number of dead letters that were discarded. If it is the limit, there may be more."""

    discarded: int


class PurgeDeadLettersRequest(Request, frozen=True, kw_only=True):
    """A request to delete finished dead letters of a group, of one topic or of all."""

    group: Name
    older_than_ms: Annotated[int, Meta(ge=0, le=MAX_DURATION_MS)]
    topic: Name | None = None
    limit: Limit = MAX_DEAD_LETTERS


class PurgedDeadLetters(Value, frozen=True, kw_only=True):
    """The number of dead letters that were deleted. If it is the limit, there may be more."""

    purged: int
