"""The log of the client while calls fail and are retried: one warning, one line at the end."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

import lakelog
from lakelog.client.retrying import Outage
from lakelog.errors import LakelogError, OutcomeUnknown, Overloaded, Unavailable
from tests.kit.ports import free_port
from tests.unit.client.faulty import Fault, FaultyTransport, client_of


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


AWAY = Unavailable("Cannot connect to http://a:1: connection refused.")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "lakelog")

    def taken() -> list[str]:
        found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
        return found

    return taken


def test_the_first_failure_is_a_warning_and_the_end_one_line(lines: Callable[[], list[str]]) -> None:
    clock = Clock()
    outage = Outage(clock=clock)
    for _ in range(5):
        outage.failed(AWAY, 29.6)
        clock.now += 3
    outage.ended()
    outage.ended()
    assert lines() == [
        "WARNING Cannot connect to http://a:1: connection refused. Retrying for up to 30 s.",
        "INFO Calls succeed again after 15.0 s.",
    ]
    Outage("orders/billing").failed(AWAY)
    [line] = lines()
    assert line.startswith("WARNING orders/billing: Cannot connect") and line.endswith("Retrying until it succeeds.")


def test_a_link_that_fails_again_and_again_is_not_announced_each_time(lines: Callable[[], list[str]]) -> None:
    clock = Clock()
    outage = Outage(clock=clock)
    for _ in range(50):
        outage.failed(AWAY, 30)
        clock.now += 0.1
        outage.ended()
    assert len(lines()) == 2
    outage.failed(AWAY, 30)
    clock.now += 11
    outage.failed(AWAY, 19)
    assert len(lines()) == 1, "an outage that lasts is announced"


def test_after_a_call_was_given_up_the_next_failure_is_announced(lines: Callable[[], list[str]]) -> None:
    outage = Outage()
    outage.failed(AWAY, 30)
    outage.given_up()
    outage.failed(AWAY, 30)
    assert len(lines()) == 2


@pytest.mark.parametrize("keyed", [None, "once"])
async def test_a_publish_that_is_retried_tells(keyed: str | None, lines: Callable[[], list[str]]) -> None:
    transport = FaultyTransport()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        transport.faults.extend([Fault.UNAVAILABLE] * 5)
        await topic.publish(b"a", idempotency_key=keyed)
        warned, ended = lines()
        assert warned.startswith("WARNING ") and "Retrying for up to 5 s." in warned
        assert ended.startswith("INFO Calls succeed again after ")
        transport.faults.extend([Fault.OVERLOADED] * 5)
        await topic.publish(b"a", idempotency_key=keyed)
        assert lines() == [], "a full server is not an outage"


async def test_a_batch_that_is_retried_tells(lines: Callable[[], list[str]]) -> None:
    transport = FaultyTransport()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        transport.faults.extend([Fault.UNAVAILABLE] * 5)
        await topic.publish_many([b"a", b"b"])
        assert [line.split()[0] for line in lines()] == ["WARNING", "INFO"]


@pytest.mark.parametrize(
    ("scheme", "said", "unreachable"),
    [
        ("http", r"WARNING Cannot connect to http://127.0.0.1:\d+: connection refused. Retrying", "server"),
        ("postgresql", "WARNING PostgreSQL .* Retrying for up to", "database"),
    ],
)
def test_a_server_that_is_not_there_is_announced_at_once(
    scheme: str, said: str, unreachable: str, lines: Callable[[], list[str]]
) -> None:
    log = lakelog.connect(f"{scheme}://127.0.0.1:{free_port()}", timeout=1)
    with pytest.raises(Unavailable) as caught:
        log.topics()
    assert caught.value.unreachable == unreachable
    found = lines()
    log.close()
    assert len(found) == 1 and re.match(said, found[0])


def test_which_errors_are_outages() -> None:
    from lakelog.client.retrying import is_outage

    assert is_outage(AWAY) and is_outage(OutcomeUnknown()) and is_outage(LakelogError())
    assert not is_outage(Overloaded())
