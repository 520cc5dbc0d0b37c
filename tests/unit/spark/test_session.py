"""Where a job finds the topics."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from lakelog.errors import ConfigurationError, InvalidRequest
from lakelog.spark import configure
from lakelog.spark.frames import option_texts
from lakelog.spark.session import (
    URL_CONF,
    ConnectionSettings,
    announced,
    check_no_speculation,
    connection_of,
    connection_to,
)
from lakelog.spark.source import source_with
from tests.kit.waiting import eventually


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_URL", "http://environment")
    monkeypatch.setenv("LAKELOG_TOKEN", "t0")
    assert connection_to(None, None) == connection_of({}) == ConnectionSettings(url="http://environment", token="t0")
    assert connection_to("http://given", "t1") == ConnectionSettings(url="http://given", token="t1")
    assert connection_of({"url": "http://given", "token": ""}) == ConnectionSettings(url="http://given", token="t0")


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


class Session:
    """A session with this configuration."""

    def __init__(self, **settings: str) -> None:
        self.conf = settings


def test_a_password_in_the_configuration_of_a_session_is_refused() -> None:
    session: Any = Session(**{URL_CONF: "postgresql://me:secret@host/db"})
    for refused in (
        lambda: connection_to(None, None, session),
        lambda: configure(SparkSession.builder, url="postgresql://me:secret@host/db"),
    ):
        with pytest.raises(InvalidRequest, match=r"in spark\.lakelog\.url contains a password") as caught:
            refused()
        assert "secret" not in caught.value.detail
    assert connection_to("postgresql://me:secret@host/db", None, session).url == "postgresql://me:secret@host/db"


def test_the_source_of_a_session_knows_its_server_unless_the_options_name_another() -> None:
    source = source_with({"url": "http://session", "token": "t1"})
    assert source.name() == "lakelog"
    pickling: Any = cloudpickle
    copy = pickling.loads(pickling.dumps(source))
    assert dict(copy({"topic": "t"}).options) == {"url": "http://session", "token": "t1", "topic": "t"}
    assert dict(copy({"topic": "t", "URL": "http://other"}).options) == {"topic": "t", "URL": "http://other"}


def test_options_are_written_as_spark_takes_them() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert option_texts({"since": at, "startOffsets": {0: 12}, "maxMessagesPerTrigger": 5, "group": "g"}) == {
        "since": "2026-01-31T12:00:00+00:00",
        "startOffsets": '{"0": 12}',
        "maxMessagesPerTrigger": "5",
        "group": "g",
    }
    assert option_texts({"failOnDataLoss": False}) == {"failOnDataLoss": "false"}


def test_without_an_address_it_is_said_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKELOG_URL", raising=False)
    with pytest.raises(InvalidRequest, match="LAKELOG_URL"):
        connection_to(None, "t1")


def test_a_driver_finds_the_server_of_lakelog_dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LAKELOG_URL", "LAKELOG_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".lakelog").mkdir()
    (tmp_path / ".lakelog/env").write_text("LAKELOG_URL=http://127.0.0.1:1\nLAKELOG_TOKEN=secret\n")
    assert connection_to(None, None) == ConnectionSettings(url="http://127.0.0.1:1", token="secret")
    assert connection_to("http://given", None) == ConnectionSettings(url="http://given", token=None)


@pytest.mark.parametrize("token", [None, "t1"])
def test_a_connection_comes_back_from_its_options(token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKELOG_TOKEN", raising=False)
    connection = ConnectionSettings(url="http://given", token=token)
    assert connection_of(connection.options) == connection
    assert ("token" in connection.options) == (token is not None)


def test_a_server_that_does_not_answer_is_announced_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lakelog.spark.session.PATIENCE_SECONDS", 0.01)
    connection = ConnectionSettings(url="postgresql://user:secret@host:5432/db")
    with announced(connection):
        eventually(lambda: caplog.messages)
    assert caplog.messages == ["Waiting for postgresql://host:5432, which has not responded for 0 s."]


def test_a_server_that_answers_is_not_announced(caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    with announced(ConnectionSettings(url="http://host:8080")):
        # Threads of earlier tests may end at any time.
        (thread,) = set(threading.enumerate()) - before
    eventually(lambda: not thread.is_alive())
    assert caplog.messages == []


def test_copies_of_tasks_are_refused_where_a_key_must_not_run_twice() -> None:
    spark: Any = Session()
    check_no_speculation(spark)
    spark.conf["spark.speculation"] = "false"
    check_no_speculation(spark)
    spark.conf["spark.speculation"] = "true"
    with pytest.raises(ConfigurationError, match=r"`spark.speculation` is on.*spark.speculation=false"):
        check_no_speculation(spark)
