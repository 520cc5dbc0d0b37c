"""Messages of a command that waits."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.cli.waiting import Watch
from lakelog.client.retrying import logger
from lakelog.errors import TopicNotFound, Unavailable

REFUSED = Unavailable("Cannot connect to http://a:1: connection refused.", reason="connection refused")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Server:
    """A transport whose calls take time and fail as told. The watch looks while they run."""

    def __init__(self, watch_clock: Clock) -> None:
        self._clock = watch_clock
        self.seconds = 0.0
        self.error: Exception | None = None
        self.watch: Watch | None = None
        self.closed = False

    @property
    def groups(self) -> Server:
        return self

    def describe(self, name: str, seconds: float) -> str:
        self._clock.now += self.seconds
        assert self.watch
        self.watch.look()
        if self.error is not None:
            raise self.error
        return name

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def patience() -> None:
    """Commands are as impatient here as elsewhere."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Server:
    return Server(clock)


@pytest.fixture
def watched(server: Server, clock: Clock) -> Any:
    server.watch = Watch("http://a:1", clock)
    return server.watch.over(server)  # type: ignore[arg-type]


def failing(watched: Any, kind: type[Exception] = Unavailable) -> None:
    with pytest.raises(kind):
        watched.describe("t", 10.0)


def test_a_call_that_works_says_nothing(watched: Any, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.seconds = 1.9
    assert watched.describe("t", 10.0) == "t" and watched.groups.describe("g", 10.0) == "g"
    assert capsys.readouterr().err == ""


def test_a_server_that_refuses_is_told_once_after_two_seconds(
    watched: Any, server: Server, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    server.error = Unavailable("The connection was lost.")
    failing(watched)
    server.error = REFUSED
    clock.now += 1.9
    failing(watched)
    assert capsys.readouterr().err == ""
    for _ in range(10):
        clock.now += 1
        failing(watched)
    assert capsys.readouterr().err == "Waiting for http://a:1: connection refused. Ctrl-C to stop.\n"
    server.error = None
    watched.describe("t", 10.0)
    assert capsys.readouterr().err == "Connected again after 12 s.\n"
    watched.describe("t", 10.0)
    assert capsys.readouterr().err == ""


def test_a_slow_answer_is_told(watched: Any, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.seconds = 2.1
    watched.groups.describe("g", 10.0)
    assert capsys.readouterr().err == "Waiting for http://a:1: no response yet. Ctrl-C to stop.\n"


def test_a_long_poll_is_not_slow(watched: Any, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.seconds = 20.0
    watched.describe("t", 30.0)
    assert capsys.readouterr().err == ""


def test_a_definite_refusal_is_no_reason_to_wait(
    watched: Any, server: Server, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    server.error = TopicNotFound("no")
    failing(watched, TopicNotFound)
    clock.now += 3
    failing(watched, TopicNotFound)
    assert capsys.readouterr().err == ""


def test_the_clients_own_lines_are_silent_until_the_client_is_closed(watched: Any, server: Server) -> None:
    assert server.watch
    server.watch.start()
    assert logger.disabled
    watched.close()
    assert server.closed and not logger.disabled
