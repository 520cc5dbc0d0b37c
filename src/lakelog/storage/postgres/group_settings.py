"""A group's settings as they are stored: JSON, with unknown fields that a newer version may have written."""

from __future__ import annotations

import msgspec

from lakelog.model.group import GroupSettings, RetryPolicy


class _StoredRetries(RetryPolicy, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A retry policy. Fields that this version does not know are ignored."""


class _StoredSettings(GroupSettings, frozen=True, kw_only=True):
    """The settings. A missing field was written by an older version, and takes the default."""

    retries: _StoredRetries = _StoredRetries()


def settings_text(settings: GroupSettings) -> str:
    """Return the settings as they are stored."""
    return msgspec.json.encode(settings).decode()


def settings_of(text: str) -> GroupSettings:
    """Return stored settings."""
    stored = msgspec.structs.asdict(msgspec.json.decode(text, type=_StoredSettings))
    retries = RetryPolicy(**msgspec.structs.asdict(stored.pop("retries")))
    return GroupSettings(retries=retries, **stored)
