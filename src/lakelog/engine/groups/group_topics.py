"""Creates readings: the first position of a group in a topic.

A group that begins to read a topic that is paused for all groups is paused for it, too. Where groups begin is decided
by others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lakelog.engine.log.topics import Topics
from lakelog.model.group import Group, GroupTopic
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import GroupCatalog

Pause = Callable[[Scope, str, str], Awaitable[object]]
"""Pauses a topic for a group: scope, group, topic."""


class GroupTopics:
    """One per engine."""

    def __init__(self, catalog: GroupCatalog, topics: Topics, pause: Pause) -> None:
        self._catalog = catalog
        self._topics = topics
        self._pause = pause

    async def switch(self, scope: Scope, topic: str, *, paused: bool) -> None:
        """Write whether groups that begin to read the topic are paused for it.

        Call it before the readers are listed: a group that begins now is among them, or finds the topic paused.
        """
        await self._topics.alter(scope, topic, change=lambda settings: replace(settings, paused=paused))

    async def create(self, group: Group, topic: Topic, wanted: GroupTopic) -> GroupTopic:
        """Return the reading that the catalog has now: the wanted one, or the one that was created first."""
        is_paused = await self._pause_with(group, topic)
        made = await self._catalog.group_topic_create(wanted)
        if not is_paused:
            # A pause that began in between either finds the reading or is found here.
            await self._pause_with(group, topic)
        return made

    async def _pause_with(self, group: Group, topic: Topic) -> bool:
        """Pause the topic for the group if it is paused for all. Return whether it is."""
        now = await self._topics.refresh(topic.scope, topic.name)
        if now.settings.paused:
            await self._pause(group.scope, group.name, topic.name)
        return now.settings.paused
