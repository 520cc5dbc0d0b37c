"""Requests that are built in this process keep the same limits as those that a server decodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from lakelog.errors import InvalidRequest
from lakelog.model.structs import Name, Natural, Positive, Request, Time, checked


class _Example(Request, frozen=True, kw_only=True):
    topic: Name
    count: Positive = 1
    since: Time | None = None
    offsets: Mapping[int, Natural] | None = None


def test_a_request_within_its_limits_is_returned() -> None:
    request = _Example(topic="orders", count=3, since=datetime(2026, 1, 31, tzinfo=UTC), offsets={0: 5})
    assert checked(request) == request


@pytest.mark.parametrize(
    "request_", [_Example(topic="Orders!"), _Example(topic="a", count=0), _Example(topic="a", offsets={0: -1})]
)
def test_a_request_beyond_its_limits_is_refused(request_: _Example) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        checked(request_)
