"""The seam between the client's verbs and what carries them: typed values in, typed values out, errors as classes.

A transport tries once. `Unavailable` and `Overloaded` mean that nothing was written; `OutcomeUnknown` that it may have
been. Whether a call is repeated is for `calls` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakelog.client._async.group_transport import AsyncGroupTransport
from lakelog.client._async.lake_transport import AsyncLakeTransport
from lakelog.client._async.pipeline_transport import AsyncPipelineTransport
from lakelog.client._async.write_transport import AsyncWriteTransport
from lakelog.client.values import Chunk, FetchWish, Purged, Run, TopicChange, TopicInfo
from lakelog.errors import LakelogError
from lakelog.model.message import Message
from lakelog.model.position import Position, Receipt
from lakelog.model.topic import TopicSettings
from lakelog.wire.frames import PublishFrame

Number = tuple[bytes, int]
"""A producer id and a sequence."""


class AsyncTransport(Protocol):
    """`seconds` is how long a call may take; then it fails as if the answer had been lost."""

    @property
    def groups(self) -> AsyncGroupTransport:
        """The verbs about groups."""
        ...

    @property
    def pipelines(self) -> AsyncPipelineTransport:
        """The verbs about runs of pipelines."""
        ...

    @property
    def lake(self) -> AsyncLakeTransport:
        """The verbs about plans and segments."""
        ...

    @property
    def writes(self) -> AsyncWriteTransport:
        """The verbs about staged messages."""
        ...

    async def open(self, seconds: float) -> None:
        """Makes ready, if anything has to be. Every other call does so by itself."""
        ...

    async def create_topic(
        self, name: str, partitions: int, settings: TopicSettings, if_missing: bool, seconds: float
    ) -> TopicInfo: ...

    async def describe_topic(self, name: str, seconds: float) -> TopicInfo: ...

    async def list_topics(self, after: str, seconds: float) -> list[TopicInfo]:
        """One page, by name, of those behind `after`; empty at the end."""
        ...

    async def alter_topic(self, name: str, change: TopicChange, seconds: float) -> TopicInfo: ...

    async def delete_topic(self, name: str, seconds: float) -> None: ...

    async def purge_topic(self, name: str, seconds: float) -> Purged: ...

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None, seconds: float
    ) -> list[Receipt | LakelogError]:
        """Numbered messages go to one partition, and all of them or none."""
        ...

    async def publish_frames(
        self, name: str, frames: Sequence[PublishFrame], seconds: float
    ) -> list[Run | LakelogError]: ...

    async def fetch(self, name: str, partition: int, position: Position, wish: FetchWish, seconds: float) -> Chunk: ...

    async def close(self) -> None: ...
