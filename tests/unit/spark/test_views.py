"""The names of the views of topics."""

from __future__ import annotations

import pytest

from lakelog.errors import InvalidRequest
from lakelog.spark.views import view_names


def test_a_view_is_named_after_its_topic() -> None:
    assert view_names(["orders", "eu.orders-2"]) == {"lakelog_orders": "orders", "lakelog_eu_orders_2": "eu.orders-2"}
    assert view_names(["orders"], "t_") == {"t_orders": "orders"}


@pytest.mark.parametrize("other", ["a.b", "a_b", "A-b"])
def test_two_topics_with_one_view_are_refused(other: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'a-b' and '{other}' would both be the view 'lakelog_"):
        view_names(["a-b", other])
