"""The calls of a client into an installation for tests: missing topics are created, and publishes fail as ordered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.session import EmbeddedSession, Number
from lakelog.client.values import Run
from lakelog.errors import LakelogError, TopicNotFound
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from lakelog.model.topic_info import CreateTopicRequest, TopicRequest
from lakelog.testing.faults import OrderedFaults
from lakelog.wire.frames import PublishFrame
from lakelog.wire.operations.operation import Operation
from lakelog.wire.operations.topics import CREATE_TOPIC, DELETE_TOPIC, DESCRIBE_TOPIC

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class TestedSession(EmbeddedSession):
    """The calls of one client. A topic that does not exist is created with one partition when it is first used."""

    __test__ = False

    def __init__(self, faults: OrderedFaults, settings: EmbeddedSettings, project: str, environment: str) -> None:
        super().__init__(settings, project, environment)
        self._faults = faults
        self._seen: set[str] = set()

    async def call(self, operation: Operation[Asked, Found], request: Asked) -> Found:
        """Run an operation, after the topics that it needs exist."""
        if operation.name == DESCRIBE_TOPIC.name and isinstance(request, TopicRequest):
            await self._ensure(request.topic)
        elif isinstance(request, JoinRequest):
            for topic in request.topics:
                await self._ensure(topic)
        elif operation.name == DELETE_TOPIC.name and isinstance(request, TopicRequest):
            # A topic that the program deletes stays deleted.
            self._seen.add(request.topic)
        return await super().call(operation, request)

    async def publish_messages(
        self, name: str, messages: Sequence[Message], number: Number | None, epoch: int | None
    ) -> list[Receipt | LakelogError]:
        """Publish messages, unless the test has ordered a failure."""
        await self._before_publish(name)
        return await super().publish_messages(name, messages, number, epoch)

    async def publish_frames(self, name: str, frames: Sequence[PublishFrame]) -> list[Run | LakelogError]:
        """Publish encoded batches, unless the test has ordered a failure."""
        await self._before_publish(name)
        return await super().publish_frames(name, frames)

    async def _before_publish(self, name: str) -> None:
        error = self._faults.take(name)
        if error is not None:
            raise error
        await self._ensure(name)

    async def _ensure(self, name: str) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        try:
            await super().call(DESCRIBE_TOPIC, TopicRequest(topic=name))
        except TopicNotFound:
            await super().call(CREATE_TOPIC, CreateTopicRequest(topic=name, if_missing=True))
