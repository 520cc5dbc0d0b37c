"""Where a job finds the topics."""

from __future__ import annotations

import pytest

from lakelog.errors import InvalidRequest
from lakelog.spark.session import Connection, connection_of, connection_to


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_URL", "http://environment")
    monkeypatch.setenv("LAKELOG_TOKEN", "t0")
    assert connection_to(None, None) == connection_of({}) == Connection(url="http://environment", token="t0")
    assert connection_to("http://given", "t1") == Connection(url="http://given", token="t1")
    assert connection_of({"url": "http://given", "token": ""}) == Connection(url="http://given", token="t0")


def test_without_an_address_it_is_said_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKELOG_URL", raising=False)
    with pytest.raises(InvalidRequest, match="LAKELOG_URL"):
        connection_to(None, "t1")


@pytest.mark.parametrize("token", [None, "t1"])
def test_a_connection_comes_back_from_its_options(token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKELOG_TOKEN", raising=False)
    connection = Connection(url="http://given", token=token)
    assert connection_of(connection.options) == connection
    assert ("token" in connection.options) == (token is not None)
