"""A subscription on Spark: handlers on executors, retries and dead letters of a group, key order, bad messages."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakelog
from lakelog import Lakelog
from lakelog.errors import ConfigurationError, GroupNotFound, GroupSettingsDiffer, InvalidRequest
from lakelog.model.progress import MemberInfo
from lakelog.spark import subscribe
from lakelog.spark.subscribing.subscribe import SubscriptionSummary
from tests.acceptance.client_kit import ThreadServer
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOON = lakelog.Fixed(max=2, seconds=0.05)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def log(spark_server: ThreadServer) -> Iterator[Lakelog]:
    with lakelog.connect(spark_server.url) as log:
        yield log


@pytest.fixture
def name(log: Lakelog) -> str:
    """Return the group of a new topic."""
    found = f"t-{uuid.uuid4().hex[:8]}"
    log.topic(found).create(partitions=2)
    return found


def run(spark: SparkSession, name: str, handler: Any, **options: Any) -> SubscriptionSummary:
    wish = {"retries": SOON, "start_from": "earliest", "until_empty": True, "concurrency": 2, **options}
    # One group for each topic: the settings of one test must not differ from those of another.
    return subscribe(spark, name, name, handler, **wish)


def lines(folder: Path) -> list[str]:
    """Return the notes of the handlers, each process in its own file, in order of time."""
    found = [line for path in folder.iterdir() for line in path.read_text().splitlines()]
    return [line.partition(" ")[2] for line in sorted(found, key=lambda line: int(line.partition(" ")[0]))]


def note(folder: Path, text: str) -> None:
    with (folder / str(os.getpid())).open("a") as file:
        file.write(f"{time.time_ns()} {text}\n")


def test_each_message_is_run_on_an_executor_and_acked(
    spark: SparkSession, log: Lakelog, name: str, tmp_path: Path
) -> None:
    log.topic(name).publish_many([{"n": n} for n in range(500)])

    def handler(value: dict[str, int], delivery: lakelog.Delivery[Any]) -> None:
        note(tmp_path, str(value["n"]))
        assert delivery.attempt == 1 and delivery.topic == name

    seen: list[SubscriptionSummary] = []
    summary = run(spark, name, handler, on_progress=seen.append)
    assert sorted(map(int, lines(tmp_path))) == list(range(500))
    assert (summary.acked, summary.delivered, summary.failed, summary.dead) == (500, 500, 0, 0)
    assert len(seen) == summary.rounds and seen[-1] == summary
    assert log.group(name).lag(name) == 0
    assert len(list(tmp_path.iterdir())) == 2, "a child for each of two slots, and the same ones in every round"


def test_a_failure_is_tried_again_in_order_and_ends_as_a_dead_letter(
    spark: SparkSession, log: Lakelog, name: str, tmp_path: Path
) -> None:
    """S15: later messages of a key wait; other keys do not."""
    topic = log.topic(name)
    for n in range(60):
        topic.publish({"n": n}, key=f"k{n % 6}")

    def handler(value: dict[str, int], delivery: lakelog.Delivery[Any]) -> None:
        n = value["n"]
        if (n == 7 and delivery.failures < 2) or n == 20:
            raise ValueError(f"no {n}")
        note(tmp_path, str(n))

    summary = run(spark, name, handler)
    ran = list(map(int, lines(tmp_path)))
    assert sorted(ran) == [n for n in range(60) if n != 20]
    for key in range(6):
        assert [n for n in ran if n % 6 == key] == [n for n in range(key, 60, 6) if n != 20]
    assert (summary.acked, summary.failed, summary.dead, summary.lost) == (59, 5, 1, 0)
    (letter,) = topic.dead_letters(name).list()
    assert (letter.error, letter.failures, letter.key) == ("ValueError: no 20", 3, b"k2")
    assert letter.owner.startswith("spark-")


def test_handlers_that_kill_their_process_or_overrun_fail_their_message_alone(
    spark: SparkSession, log: Lakelog, name: str
) -> None:
    topic = log.topic(name)
    topic.publish_many([{"n": n} for n in range(100)])

    def handler(value: dict[str, int]) -> None:
        match value["n"]:
            case 10:
                os._exit(1)
            case 20:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 30:
                time.sleep(60)

    summary = run(spark, name, handler, retries=lakelog.Fixed(max=1, seconds=0.05), ack_timeout=1)
    assert (summary.acked, summary.dead, summary.crashed) == (97, 3, 4)
    # On a busy machine, the time may be over for others, which are tried again.
    assert summary.timed_out >= 2
    reasons = sorted(letter.error for letter in topic.dead_letters(name).list())
    assert reasons == [
        "crash: the handler's process ended with code 1",
        "crash: the handler's process was killed by SIGSEGV",
        "timeout: the handler did not end within 1 s",
    ]


def test_a_message_that_kills_the_executors_process_is_found_and_the_others_are_acked(
    spark: SparkSession, log: Lakelog, name: str
) -> None:
    """The task fails with all of its messages: the round runs in parts until the message is alone."""
    topic = log.topic(name)
    topic.publish_many([{"n": n} for n in range(6)])

    def handler(value: dict[str, int]) -> None:
        if value["n"] == 5:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)

    summary = run(spark, name, handler, retries=0)
    assert (summary.acked, summary.dead, summary.lost) == (5, 1, 0)
    (letter,) = topic.dead_letters(name).list()
    assert letter.error.startswith("crash: the executor's process was lost")


def test_more_handlers_than_cores_run_at_once(spark: SparkSession, log: Lakelog, name: str, tmp_path: Path) -> None:
    """More handlers than partitions: each of six waits until all six have begun."""
    log.topic(name).publish_many([{"n": n} for n in range(6)])

    def handler(value: dict[str, int]) -> None:
        (tmp_path / str(value["n"])).touch()
        while len(list(tmp_path.iterdir())) < 6:
            time.sleep(0.01)

    assert run(spark, name, handler, concurrency=6, ack_timeout=20).acked == 6


def members(log: Lakelog, name: str) -> tuple[MemberInfo, ...]:
    try:
        return log.group(name).describe().members
    except GroupNotFound:
        return ()


def test_it_is_a_member_of_its_group_and_ends_when_stopped(spark: SparkSession, log: Lakelog, name: str) -> None:
    topic = log.topic(name)
    topic.publish({"n": 0})
    stop = threading.Event()
    found: list[SubscriptionSummary] = []
    arguments = {"stop": stop, "until_empty": False}
    thread = threading.Thread(target=lambda: found.append(run(spark, name, lambda value: None, **arguments)))
    thread.start()
    try:
        (member,) = eventually(lambda: members(log, name), within=30)
        assert member.member_id.startswith("spark-")
        eventually(lambda: log.group(name).lag(name) == 0, within=30)
        topic.publish({"n": 1})
        eventually(lambda: log.group(name).lag(name) == 0, within=30)
    finally:
        stop.set()
        thread.join(30)
    assert found[0].acked == 2
    assert members(log, name) == ()


class _Elsewhere:
    """An object that loads only in the process that created it."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def __call__(self, value: object) -> None: ...

    def __setstate__(self, state: dict[str, int]) -> None:
        if state["pid"] != os.getpid():
            raise ImportError("No module named 'torch'")


def test_a_handler_that_cannot_run_on_executors_is_refused_and_fails_no_message(
    spark: SparkSession, log: Lakelog, name: str
) -> None:
    log.topic(name).publish_many([{"n": n} for n in range(10)])
    with pytest.raises(ConfigurationError, match="cannot be loaded on an executor: ImportError: No module"):
        run(spark, name, _Elsewhere())
    lock = threading.Lock()
    with pytest.raises(InvalidRequest, match="cannot be sent to executors"):
        run(spark, name, lambda value: lock.acquire())
    progress = log.group(name).progress(name)
    assert sum(each.lag for each in progress) == 10 and sum(each.leased for each in progress) == 0
    assert run(spark, name, lambda value, delivery: delivery.failures and 1 / 0).acked == 10


def test_other_settings_than_the_groups_are_refused(spark: SparkSession, name: str) -> None:
    run(spark, name, lambda value: None)
    with pytest.raises(GroupSettingsDiffer, match="retries"):
        run(spark, name, lambda value: None, retries=9)
