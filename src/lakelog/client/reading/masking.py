"""Masks what messages, dead letters and stories hold, for programs that show them to people, such as the console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from lakelog.model.dead_letter_clusters import DeadLetterCluster
from lakelog.model.dead_letters import DeadLetter
from lakelog.model.masks import HIDDEN, MASK, Masks
from lakelog.model.message_story import MessageStory, StoryEvent
from lakelog.model.topic_info import TopicInfo


def masks_of(info: TopicInfo) -> Masks:
    """Return the masks of a topic."""
    return Masks.of(info.masks, info.key_field)


def masked_story(story: MessageStory, masks: Masks) -> MessageStory:
    """Return a story as people see it."""

    def masked(event: StoryEvent) -> StoryEvent:
        return replace(event, error=masks.text("error", event.error), traceback=masks.text("error", event.traceback))

    return replace(story, lanes=tuple(replace(lane, events=tuple(map(masked, lane.events))) for lane in story.lanes))


class TopicMasks:
    """The masks of several topics. Messages of other topics are masked completely."""

    def __init__(self, topics: Iterable[TopicInfo]) -> None:
        self.by_name: Mapping[str, Masks] = {info.name: masks_of(info) for info in topics}

    def of(self, topic: str) -> Masks:
        """Return the masks of a topic."""
        return self.by_name.get(topic, HIDDEN)

    def letter(self, letter: DeadLetter) -> DeadLetter:
        """Return a dead letter as people see it."""
        masks = self.of(letter.topic)
        return replace(
            letter,
            key=masks.key(letter.key),
            raw=masks.value(letter.raw),
            headers=masks.shown_headers(letter.headers),
            correlation_id=masks.text("correlation_id", letter.correlation_id),
            idempotency_key=masks.text("idempotency_key", letter.idempotency_key),
            error=masks.text("error", letter.error),
            traceback=masks.text("error", letter.traceback),
        )

    def cluster(self, cluster: DeadLetterCluster) -> DeadLetterCluster:
        """Return a cluster as people see it. The place in the code is not masked."""
        if not any("error" in self.of(topic).whole for topic in cluster.topics):
            return cluster
        return replace(cluster, kind=MASK, pattern=MASK, error=MASK)
