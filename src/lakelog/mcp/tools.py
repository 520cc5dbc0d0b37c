"""The five questions that a model may ask. Each is a few read calls of the client.

The docstrings are what the model reads about a tool. Without payloads, a filter may not name what messages hold, and
never what a topic masks: its outcome would tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field

from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client.reading.masking import TopicMasks, masked_story, masks_of
from lakelog.errors import InvalidRequest
from lakelog.mcp.answers import (
    Answer,
    clusters_answer,
    group_answer,
    groups_answer,
    messages_answer,
    story_answer,
    stuck_answer,
)
from lakelog.mcp.search import Wanted
from lakelog.mcp.search import find_messages as search
from lakelog.model.filter import Filter, parse
from lakelog.model.masks import HIDDEN, Masks

_OPEN_FIELDS = frozenset(["offset", "partition", "deliveries", "failures"])
"""Fields of a filter that tell nothing about what a message holds."""
_NO_FILTER = Field(description="A filter, such as `value.total > 100 and headers.source = 'checkout'`.")

GroupName = Annotated[str, Field(description="The name of the group.")]
TopicName = Annotated[str, Field(description="The name of the topic.")]
FilterText = Annotated[str | None, _NO_FILTER]


class Tools:
    """The tools of one client. Each method answers one call."""

    def __init__(self, log: AsyncLakelog, *, payloads: bool) -> None:
        self._log = log
        self._payloads = payloads

    async def why_stuck(self, group: GroupName) -> Answer:
        """Why a consumer group does not progress: each cause with its evidence, since when, and the commands that help.

        `nothing_wrong` is the only cause of a group that works. The commands are for the user: this server changes
        nothing.
        """
        return stuck_answer(await self._log.group(group).describe())

    async def group(
        self, name: Annotated[str | None, Field(description="The name of the group. Default: list all groups.")] = None
    ) -> Answer:
        """Settings, members, leases, lag and progress of a consumer group; without a name, all groups in short."""
        if name is None:
            return groups_answer(await self._log.groups())
        return group_answer(await self._log.group(name).describe())

    async def find_messages(
        self,
        topic: TopicName,
        partition: Annotated[int | None, Field(ge=0, description="Only this partition. Default: all.")] = None,
        offset: Annotated[int | None, Field(ge=0, description="Begin at this offset; needs `partition`.")] = None,
        since: Annotated[datetime | None, Field(description="Begin at this time, with a time zone.")] = None,
        key: Annotated[str | None, Field(description="Only messages with exactly this key.")] = None,
        where: FilterText = None,
        limit: Annotated[int, Field(ge=1, le=100, description="The most messages to return.")] = 20,
    ) -> Answer:
        """Find messages of a topic by position, time, key or filter.

        With `offset` or `since` it returns the first matches from there on, otherwise the newest ones. One call looks
        at 20,000 messages at most, for 10 seconds: `scanned` says how many, and `continue_at` at which offset of which
        partition to continue.
        """
        wanted = Wanted(
            partition=partition, offset=offset, since=since, key=key, where=self._filter(where), limit=limit
        )
        masks = masks_of(await self._log.topic(topic).describe()) if self._payloads else None
        _refuse_masked(wanted.where, {} if masks is None else {topic: masks})
        found = await search(self._log.topic(topic), wanted)
        return messages_answer(found.messages, found.scanned, found.continue_at, masks)

    async def message_story(
        self,
        id: Annotated[str, Field(description="The id of the message, such as 12-3-4567.")],
        topic: Annotated[str | None, Field(description="The topic. Default: found by the id.")] = None,
    ) -> Answer:
        """When one message was appended, and what became of it in each consumer group: leased, dead, redriven, done."""
        story = await self._log.message_story(id, topic=topic)
        if not self._payloads:
            return story_answer(story, payloads=False)
        masks = HIDDEN if story.topic is None else masks_of(await self._log.topic(story.topic).describe())
        return story_answer(masked_story(story, masks), payloads=True)

    async def dead_clusters(
        self,
        group: GroupName,
        topic: Annotated[str | None, Field(description="Only dead letters of this topic.")] = None,
        where: Annotated[str | None, Field(description="A filter, such as `failures > 3`.")] = None,
        limit: Annotated[int, Field(ge=1, le=1000, description="The most causes to return.")] = 50,
    ) -> Answer:
        """Dead letters of a consumer group by cause, the largest first, each with its count, times and an example.

        Dead letters with the same error, apart from numbers, ids and quoted texts, have one cause.
        """
        letters, chosen = self._log.group(group).dead_letters(topic), self._filter(where)
        masks = TopicMasks(await self._log.topics())
        _refuse_masked(chosen, {name: each for name, each in masks.by_name.items() if topic in (None, name)})
        found = await (letters if chosen is None else letters.where(where)).clusters(limit)
        shown = replace(found, clusters=tuple(map(masks.cluster, found.clusters)))
        return clusters_answer(group, shown, self._payloads)

    def _filter(self, where: str | None) -> Filter | None:
        if not where:
            return None
        found = parse(where)
        closed = sorted(found.fields - _OPEN_FIELDS)
        if closed and not self._payloads:
            raise InvalidRequest(
                f"This server does not show payloads, so a filter may not use {', '.join(closed)}. It may use "
                f"{', '.join(sorted(_OPEN_FIELDS))}. `lakelog mcp --payloads` allows the rest."
            )
        return found

    def all(self) -> tuple[Any, ...]:
        """Return the tools, in the order in which a model sees them."""
        return (self.why_stuck, self.group, self.find_messages, self.message_story, self.dead_clusters)


def _refuse_masked(chosen: Filter | None, masks: Mapping[str, Masks]) -> None:
    """Raise `InvalidRequest` if the filter uses a field that one of the topics masks."""
    for topic, each in masks.items():
        for name in filter(each.hides, frozenset() if chosen is None else chosen.names):
            raise InvalidRequest(
                f"Topic '{topic}' masks {name}, or a part of it, so a filter may not use it. Use another filter, or "
                "give the `topic` if you mean another one."
            )
