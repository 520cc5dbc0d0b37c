"""Handlers in children: order, failures, crashes, timeouts, what a handler may say; without Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.errors import ConfigurationError, InvalidRequest
from lakelog.spark.subscribing import child_processes
from lakelog.spark.subscribing.child_processes import run_slots
from lakelog.spark.subscribing.handling import ChildEvent, HandlerOutcome, HandlerTask, SlotResult, pickled_handler


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    yield
    child_processes.child_pool.close()


CODEC: Codec[Any] = Codec()
NOW = datetime.now(UTC)


def task(offset: int, value: str, chain: int | None = None) -> HandlerTask:
    raw = value.encode()
    message: ReceivedMessage[Any] = ReceivedMessage(
        "orders", 0, offset, b"k", raw, MappingProxyType({}), "text/plain", None, None, NOW, None, None, 7, CODEC
    )
    return HandlerTask(message, attempt=2, failures=1, chain=-offset - 1 if chain is None else chain)


def run(handler: Callable[..., Any], *slots: list[HandlerTask], timeout: float = 10.0) -> list[SlotResult]:
    return run_slots(slots, pickled_handler(handler, None, None, timeout))


def event(result: SlotResult) -> str:
    return " ".join(outcome.event.name for outcome in result.outcomes)


def test_messages_run_in_order_and_are_acked(tmp_path: Path) -> None:
    def handler(value: str) -> None:
        with (tmp_path / "ran").open("a") as file:
            file.write(value)

    (result,) = run(handler, [task(number, str(number)) for number in range(10)])
    assert (tmp_path / "ran").read_text() == "0123456789"
    assert event(result) == " ".join(["ACK"] * 10)


def test_later_messages_of_a_key_do_not_run_behind_one_that_failed(tmp_path: Path) -> None:
    """S15: those of other keys go on."""

    def handler(value: str) -> None:
        (tmp_path / value).touch()
        if value == "bad":
            raise ValueError("no")

    tasks = [task(0, "a", 1), task(1, "bad", 1), task(2, "other", 2), task(3, "behind", 1)]
    (result,) = run(handler, tasks)
    assert event(result) == "ACK NACK ACK RELEASE"
    assert result.outcomes[1].reason == "ValueError: no"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "bad", "other"]


@pytest.mark.parametrize(
    "how, reason",
    [
        (lambda: os._exit(3), "crash: the handler's process ended with code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash: the handler's process was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "crash: the handler's process was killed by SIGSEGV"),
    ],
)
def test_a_handler_that_ends_its_process_fails_its_message_alone(how: Callable[[], None], reason: str) -> None:
    """S15: a new child goes on, and not behind the one that failed."""

    def handler(value: str) -> None:
        if value == "bad":
            how()

    tasks = [task(0, "a", 1), task(1, "bad", 1), task(2, "b", 2), task(3, "behind", 1), task(4, "bad", 3), task(5, "c")]
    (result,) = run(handler, tasks)
    assert event(result) == "ACK NACK ACK RELEASE NACK ACK"
    assert result.outcomes[1].reason == result.outcomes[4].reason == reason
    assert (result.crashed, result.timed_out) == (2, 0)


def test_a_handler_that_takes_too_long_is_killed_and_fails_its_message() -> None:
    def handler(value: str) -> None:
        if value == "slow":
            time.sleep(60)

    begun = time.monotonic()
    (result,) = run(handler, [task(0, "slow", 1), task(1, "behind", 1), task(2, "b")], timeout=1.0)
    assert event(result) == "NACK RELEASE ACK"
    assert result.outcomes[0].reason == "timeout: the handler did not end within 1 s"
    assert result.timed_out == 1 and time.monotonic() - begun < 10


def test_a_handler_may_ask_for_more_time() -> None:
    def handler(value: str, delivery: Any) -> None:
        delivery.extend(30)
        time.sleep(1.2)

    assert event(run(handler, [task(0, "a")], timeout=1.0)[0]) == "ACK"


def test_lanes_run_beside_one_another(tmp_path: Path) -> None:
    """Each waits for the other to have begun."""

    def handler(value: str) -> None:
        (tmp_path / value).touch()
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)

    results = run(handler, [task(0, "a")], [task(1, "b")], timeout=10)
    assert [event(result) for result in results] == ["ACK", "ACK"]


def test_what_a_handler_says_itself_counts() -> None:
    def handler(value: str, delivery: Any) -> None:
        assert (delivery.attempt, delivery.failures, delivery.offset, delivery.key) == (2, 1, int(value[-1]), b"k")
        assert delivery.id == f"7-0-{value[-1]}" and delivery.value == value
        match value[0]:
            case "n":
                delivery.nack(delay=1.5, reason="later")
            case "f":
                delivery.fail("never")
            case "d":
                delivery.discard("unwanted")
            case "a":
                delivery.ack()
                raise ValueError("after the answer")
            case "x":
                sys.exit(4)

    (result,) = run(handler, [task(number, f"{verb}{number}") for number, verb in enumerate("nfdax")])
    assert result.outcomes == [
        HandlerOutcome(ChildEvent.NACK, "later", 1500),
        HandlerOutcome(ChildEvent.FAIL, "never"),
        HandlerOutcome(ChildEvent.DISCARD, "unwanted"),
        HandlerOutcome(ChildEvent.ACK),
        HandlerOutcome(ChildEvent.NACK, "SystemExit: 4", None, result.outcomes[-1].traceback),
    ]


def test_a_failure_carries_the_traceback_from_the_handler_on() -> None:
    def handler(value: str, delivery: Any) -> None:
        try:
            raise KeyError(value)
        except KeyError:
            if value == "said":
                delivery.fail("no such thing")
            else:
                raise

    (result,) = run(handler, [task(0, "raised"), task(1, "said")])
    for outcome, last in zip(result.outcomes, ["KeyError: 'raised'", "KeyError: 'said'"], strict=True):
        lines = (outcome.traceback or "").splitlines()
        assert f'File "{__file__}"' in lines[1] and lines[1].endswith("in handler") and lines[-1] == last
    assert [outcome.reason for outcome in result.outcomes] == ["KeyError: 'raised'", "no such thing"]


def test_values_have_the_type_that_was_asked_for_and_others_fail_for_good() -> None:
    def handler(value: int) -> None:
        assert value == 12

    (result,) = run_slots([[task(0, "12"), task(1, "x")]], pickled_handler(handler, None, int, 5))
    assert event(result) == "ACK FAIL" and "not valid as int" in result.outcomes[1].reason


def test_a_filter_runs_in_the_child_and_what_it_refuses_is_acked() -> None:
    def handler(value: str) -> None:
        assert value == "a"

    (result,) = run_slots([[task(0, "a"), task(1, "b")]], pickled_handler(handler, lambda value: value == "a", None, 5))
    assert event(result) == "ACK ACK"


def test_children_are_kept_for_the_next_task() -> None:
    def handler(value: str, delivery: Any) -> None:
        delivery.nack(reason=str(os.getpid()))

    pickled = pickled_handler(handler, None, None, 5)
    reasons = [run_slots([[task(0, "a")]], pickled)[0].outcomes[0].reason for _ in range(3)]
    assert len(set(reasons)) == 1 and reasons[0] != str(os.getpid())


class _Unloadable:
    """Pickles here, and does not load there."""

    def __init__(self, how: Callable[[], None]) -> None:
        self.how = how

    def __call__(self, value: object) -> None: ...

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["how"]()


def _raise() -> None:
    raise ImportError("No module named 'torch'")


def _leave() -> None:
    os._exit(9)


@pytest.mark.parametrize("how, why", [(_raise, "No module named 'torch'"), (_leave, "ended with code 9")])
def test_a_handler_that_cannot_be_loaded_fails_no_message(how: Callable[[], None], why: str) -> None:
    pickled = pickled_handler(_Unloadable(how), None, None, 5)
    with pytest.raises(ConfigurationError, match=why):
        run_slots([[task(0, "a")], [task(1, "b")]], pickled)


def test_a_handler_that_cannot_be_pickled_is_refused_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(InvalidRequest, match="cannot be sent to executors"):
        pickled_handler(lambda value: lock.acquire(), None, None, 5)

    async def handler(value: str) -> None: ...

    with pytest.raises(InvalidRequest, match="plain function"):
        pickled_handler(handler, None, None, 5)


def test_an_awaitable_that_a_handler_returns_is_awaited() -> None:
    async def bill(value: str) -> None:
        if value == "b":
            raise ValueError("no such account")

    (result,) = run(lambda value: bill(value), [task(0, "a"), task(1, "b")])
    assert event(result) == "ACK NACK" and result.outcomes[1].reason == "ValueError: no such account"


def test_generators_are_refused_and_fail_the_message() -> None:
    def handler(value: str) -> Any:
        yield value

    with pytest.raises(InvalidRequest, match="yield"):
        pickled_handler(handler, None, None, 5)
    (result,) = run(lambda value: handler(value), [task(0, "a")])
    assert event(result) == "NACK" and "returned a generator" in result.outcomes[0].reason


def test_a_fast_handler_costs_little() -> None:
    """Not a benchmark: a wait for each message would take a hundred times as long."""

    def handler(value: str) -> None: ...

    begun = time.monotonic()
    (result,) = run(handler, [task(number, "a") for number in range(20_000)])
    seconds = time.monotonic() - begun
    print(f"{20_000 / seconds:,.0f} messages/s in one child")
    assert len(result.outcomes) == 20_000 and seconds < 20
