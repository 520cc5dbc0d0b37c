"""How many a second."""

from __future__ import annotations

import pytest

from lakelog.errors import InvalidRequest
from lakelog.model.rate import rate_of


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("100", 100), ("7.5", 7.5), ("100/s", 100), (" 100/s ", 100), ("30/m", 0.5), ("30/min", 0.5), ("36/h", 0.01)],
)
def test_a_rate_is_how_many_a_second(text: str, per_second: float) -> None:
    assert rate_of(text) == per_second


@pytest.mark.parametrize("text", ["", "0", "0/s", "-1", "100/", "100/d", "100/minute", "100 / s", "/s", "fast", "٣/s"])
def test_what_is_no_rate_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Write it as 100/s or 30/m"):
        rate_of(text)
