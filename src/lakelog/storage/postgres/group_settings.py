"""A group's settings as they are stored: JSON that a newer version may have written more into."""

from __future__ import annotations

import msgspec

from lakelog.model.group import Assignor, Exponential, Fixed, GroupSettings, Order, RetryPolicy

_DEFAULT = GroupSettings()


class _ExponentialRetry(msgspec.Struct, kw_only=True, tag_field="strategy", tag="exponential"):
    max: int
    base_seconds: float
    max_seconds: float
    jitter: float


class _FixedRetry(msgspec.Struct, kw_only=True, tag_field="strategy", tag="fixed"):
    max: int
    seconds: float


class _StoredSettings(msgspec.Struct, kw_only=True):
    """What is missing was written by an older version, and takes the default."""

    order: Order = _DEFAULT.order
    filter: str | None = _DEFAULT.filter
    retries: _ExponentialRetry | _FixedRetry | None = None
    dead_letter: bool = _DEFAULT.dead_letter
    assignor: Assignor = _DEFAULT.assignor
    window: int = _DEFAULT.window


def settings_text(settings: GroupSettings) -> str:
    stored = _StoredSettings(
        order=settings.order,
        filter=settings.filter,
        retries=_stored(settings.retries),
        dead_letter=settings.dead_letter,
        assignor=settings.assignor,
        window=settings.window,
    )
    return msgspec.json.encode(stored).decode()


def settings_of(text: str) -> GroupSettings:
    stored = msgspec.json.decode(text, type=_StoredSettings)
    return GroupSettings(
        order=stored.order,
        filter=stored.filter,
        retries=_policy(stored.retries),
        dead_letter=stored.dead_letter,
        assignor=stored.assignor,
        window=stored.window,
    )


def _stored(policy: RetryPolicy) -> _ExponentialRetry | _FixedRetry:
    if isinstance(policy, Fixed):
        return _FixedRetry(max=policy.max, seconds=policy.seconds)
    return _ExponentialRetry(
        max=policy.max, base_seconds=policy.base_seconds, max_seconds=policy.max_seconds, jitter=policy.jitter
    )


def _policy(stored: _ExponentialRetry | _FixedRetry | None) -> RetryPolicy:
    if stored is None:
        return _DEFAULT.retries
    if isinstance(stored, _FixedRetry):
        return Fixed(max=stored.max, seconds=stored.seconds)
    return Exponential(
        max=stored.max, base_seconds=stored.base_seconds, max_seconds=stored.max_seconds, jitter=stored.jitter
    )
