"""How log lines and errors name a database: never with its password."""

from __future__ import annotations

import pytest

from lakelog.errors import ConfigurationError
from lakelog.storage.postgres.address import address_of


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "shown", "user"),
    [
        ("postgresql://svc:hunter2@10.0.0.5:5433/lakelog", "10.0.0.5:5433/lakelog", "svc"),
        ("postgres://svc:hunter2@db/lakelog?sslmode=require", "db:5432/lakelog", "svc"),
        ("postgresql://s%40c:hunter2@[::1]:5432/lake%20log", "[::1]:5432/lake log", "s@c"),
        ("postgresql://svc@[::1]/x", "[::1]:5432/x", "svc"),
        ("postgresql://svc@a:1,b:2,c/x", "a:1,b:2,c:5432/x", "svc"),
        ("postgresql://svc@/x?host=/var/run/postgresql", "/var/run/postgresql/x", "svc"),
        ("postgresql:///?user=svc&password=hunter2&dbname=x&port=6000", "localhost:6000/x", "svc"),
        ("postgresql://svc@db", "db:5432/svc", "svc"),
    ],
)
def test_a_database_is_named_by_host_port_and_name(url: str, shown: str, user: str) -> None:
    address = address_of(url)
    assert (str(address), address.user) == (shown, user)
    assert "hunter2" not in repr(address)


def test_what_the_url_leaves_out_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("PGHOST", "db"), ("PGPORT", "6000"), ("PGUSER", "svc"), ("PGDATABASE", "lakelog")):
        monkeypatch.setenv(name, text)
    assert str(address_of("postgresql://")) == "db:6000/lakelog"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://svc:hunter2/x@db/lakelog",
        "postgresql://svc:1/hunter2@db/lakelog",
        "postgresql://svc@db:hunter2/lakelog",
        "postgresql://[hunter2/lakelog",
    ],
)
def test_a_url_that_cannot_be_parsed_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encode") as caught:
        address_of(url)
    assert "hunter2" not in caught.value.detail
