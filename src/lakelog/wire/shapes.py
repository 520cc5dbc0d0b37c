"""The JSON bodies of the API, as structs that are checked while they are decoded.

Durations are `_ms` integers, and times are RFC 3339 with an offset. A value is JSON or text (`value`), or
bytes (`value_base64`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from lakelog.model import limits
from lakelog.model.structs import Natural, Positive


class BodyShape(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request body. An unknown field is refused, because it is a mistake of the caller."""


class ReplyShape(Struct, frozen=True, kw_only=True):
    """A reply. Clients ignore fields that they do not know."""


class MessageShape(BodyShape, frozen=True, kw_only=True):
    """One message of a JSON publish."""

    value: msgspec.Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | UnsetType = UNSET
    headers: dict[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    partition: Natural | None = None
    idempotency_key: Annotated[str, Meta(min_length=1)] | None = None
    created_at: Annotated[datetime, Meta(tz=True)] | None = None
    expires_ms: Positive | None = None
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    delay_ms: Positive | None = None
    deliver_at: Annotated[datetime, Meta(tz=True)] | None = None
    schedule_id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None


class Publish(BodyShape, frozen=True, kw_only=True):
    """The body of POST /v1/topics/{topic}/messages."""

    messages: Annotated[list[MessageShape], Meta(min_length=1, max_length=limits.MAX_BATCH_MESSAGES)]
    producer: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None
    sequence: Natural | None = None
    epoch: Natural | None = None


class PublishResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one message: its position, or why it was refused.

    A delayed message has `due_at`, and no `offset` while it waits.
    """

    id: str | None = None
    partition: int | None = None
    offset: int | None = None
    due_at: datetime | None = None
    duplicate: bool = False
    error: dict[str, Any] | None = None


class PublishAnswer(ReplyShape, frozen=True, kw_only=True):
    """The reply to a publish. Its status is 200 if all messages were stored, otherwise 207."""

    results: list[PublishResult]


class FrameResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one frame of a bulk publish: the position of its first message, or why it was refused."""

    partition: int
    count: int
    offset: int | None = None
    duplicate: bool = False
    error: dict[str, Any] | None = None


class FramesAnswer(ReplyShape, frozen=True, kw_only=True):
    results: list[FrameResult]


class ShownShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message in JSON. JSON and text values are in `value`, other bytes in `value_base64`."""

    id: str
    offset: int
    key: str | None = None
    key_base64: bytes | None = None
    value: msgspec.Raw | str | None = None
    value_base64: bytes | None = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None


class FetchedShape(ShownShape, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a JSON fetch."""

    appended_at: datetime


class FetchReply(ReplyShape, frozen=True, kw_only=True):
    """The reply to GET /v1/topics/{topic}/partitions/{n}/messages. Continue at `next_offset`."""

    messages: list[FetchedShape]
    next_offset: int
    log_start: int
    high_watermark: int


class Health(ReplyShape, frozen=True, kw_only=True):
    """The reply to GET /healthz and GET /readyz."""

    status: str
    durable: bool
    version: str
    warnings: list[str] = []


class IcebergConfig(ReplyShape, frozen=True, kw_only=True):
    """The configuration of Iceberg's catalog: nothing but the operations that it has."""

    endpoints: list[str]
    defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}


class IcebergNamespaces(ReplyShape, frozen=True, kw_only=True):
    """The namespaces of Iceberg's catalog, each as a list of its levels."""

    namespaces: list[list[str]]


class IcebergNamespace(ReplyShape, frozen=True, kw_only=True):
    """A namespace of Iceberg's catalog."""

    namespace: list[str]
    properties: dict[str, str] = {}


class IcebergIdentifier(ReplyShape, frozen=True, kw_only=True):
    """The name of a table in Iceberg's catalog."""

    namespace: list[str]
    name: str


class IcebergTables(ReplyShape, frozen=True, kw_only=True):
    """The tables of a namespace in Iceberg's catalog."""

    identifiers: list[IcebergIdentifier]


class IcebergLoaded(ReplyShape, frozen=True, kw_only=True):
    """A table in Iceberg's catalog: the URL of its metadata file, and what the file contains."""

    metadata_location: str = msgspec.field(name="metadata-location")
    metadata: dict[str, Any]
    config: dict[str, str] = {}
