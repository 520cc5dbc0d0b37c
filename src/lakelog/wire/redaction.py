"""Replies for callers that may inspect and not read: without the keys, values, headers and errors of messages.

An error is hidden because handlers quote values in it. A filter is refused, because its outcome tells values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from lakelog.model.dead_letter_clusters import DeadLetterClusters
from lakelog.model.dead_letters import DeadLetter, DeadLetterPage
from lakelog.model.message_story import MessageStory, StoryEvent
from lakelog.model.outbox import RejectedPage
from lakelog.model.pipeline import Runs
from lakelog.model.scheduled import ScheduledPage

HIDDEN = "Hidden: the token has no right to read."
_PAYLOAD: dict[str, Any] = {"key": None, "raw": None, "headers": {}, "correlation_id": None, "idempotency_key": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The parts of an operation that a caller with the right to inspect, and without the right to read, may not see.

    Attributes:
        hide: Returns the reply without what belongs to messages.
        refused: Fields of the request that the caller may not use.
    """

    hide: Callable[[Any], Any]
    refused: tuple[str, ...] = ()


def hide_letter(letter: DeadLetter) -> DeadLetter:
    """Return the dead letter without its message, its error and its traceback."""
    return replace(letter, **_PAYLOAD, error=HIDDEN, traceback=None)


def hide_letters(page: DeadLetterPage) -> DeadLetterPage:
    return replace(page, letters=[hide_letter(each) for each in page.letters])


def hide_clusters(found: DeadLetterClusters) -> DeadLetterClusters:
    """Return the clusters without their errors and patterns: a pattern quotes what the handler wrote."""
    return replace(found, clusters=tuple(replace(each, error=HIDDEN, pattern=HIDDEN) for each in found.clusters))


def hide_story(story: MessageStory) -> MessageStory:
    """Return the story without the errors and tracebacks of its events."""
    lanes = [replace(lane, events=tuple(map(_hide_event, lane.events))) for lane in story.lanes]
    return replace(story, lanes=tuple(lanes))


def _hide_event(event: StoryEvent) -> StoryEvent:
    return replace(event, error=HIDDEN, traceback=None) if event.error is not None else event


def hide_scheduled(page: ScheduledPage) -> ScheduledPage:
    return replace(page, messages=[replace(each, **_PAYLOAD) for each in page.messages])


def hide_rejected(page: RejectedPage) -> RejectedPage:
    return replace(page, messages=[replace(each, **_PAYLOAD, reason=HIDDEN) for each in page.messages])


def hide_runs(found: Runs) -> Runs:
    """Return the runs without their detail, which may quote rows."""
    runs = [dataclasses.replace(each, detail=HIDDEN if each.detail else "") for each in found.runs]
    return replace(found, runs=runs)
