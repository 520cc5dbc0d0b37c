"""A group's settings as they are stored: JSON, with unknown fields that a newer version may have written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import asdict

from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.group import GroupSettings, GroupTopicSettings, RetryPolicy

KEPT_SETTINGS = 1000
"""How many settings are kept decoded."""


class _StoredRetries(RetryPolicy, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A retry policy. Fields that this version does not know are ignored."""


class _StoredRetention(DeadLetterRetention, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A retention of dead letters. Fields that this version does not know are ignored."""


class _StoredTopicSettings(GroupTopicSettings, frozen=True, kw_only=True):
    """The settings of one topic."""

    retries: _StoredRetries | None = None


class _StoredSettings(GroupSettings, frozen=True, kw_only=True):
    """The settings. A missing field was written by an older version, and takes the default."""

    retries: _StoredRetries = _StoredRetries()
    dead_letter_retention: _StoredRetention = _StoredRetention()
    topics: Mapping[str, _StoredTopicSettings] = {}


def settings_text(settings: GroupSettings) -> str:
    """Return the settings as they are stored. `topics` is left out if it is empty: the second level has none."""
    stored = asdict(settings)
    if not settings.topics:
        del stored["topics"]
    return msgspec.json.encode(stored).decode()


@lru_cache(maxsize=KEPT_SETTINGS)
def settings_of(text: str) -> GroupSettings:
    """Return stored settings. Most groups have equal ones."""
    stored = asdict(msgspec.json.decode(text, type=_StoredSettings))
    topics = {topic: _topic_of(own) for topic, own in stored.pop("topics").items()}
    retries = _retries_of(stored.pop("retries"))
    retention = DeadLetterRetention(**asdict(stored.pop("dead_letter_retention")))
    return GroupSettings(retries=retries, dead_letter_retention=retention, topics=topics, **stored)


def _topic_of(stored: _StoredTopicSettings) -> GroupTopicSettings:
    retries = None if stored.retries is None else _retries_of(stored.retries)
    return GroupTopicSettings(**{**asdict(stored), "retries": retries})


def _retries_of(stored: _StoredRetries) -> RetryPolicy:
    return RetryPolicy(**asdict(stored))
