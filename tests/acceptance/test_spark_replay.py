"""A replay into another topic, from Python and by command, on real Spark: each message once, also after a kill."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakelog
from lakelog import failpoints
from lakelog.cli.submit import main as submit
from lakelog.errors import Conflict, GroupNotFound, PipelineBusy, TopicNotFound, Unavailable
from lakelog.model.pipeline import RunState
from lakelog.spark import replay
from lakelog.spark.pipelines import replaying
from lakelog.spark.pipelines.replaying import ReplaySummary
from tests.acceptance.cli_kit import Cli
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.spark import environment, java_options, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

SLOW = 240
"""Seconds for a command that starts Spark on a busy machine."""
COLUMNS = ["key", "value", "headers", "content_type", "correlation_id", "created_at", "expires_at"]


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster, servers=1) as started:
        yield started


@pytest.fixture(scope="module")
def url(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet.ports[0]}"


@pytest.fixture(scope="module")
def spark(url: str) -> Iterator[SparkSession]:
    with local_session({"spark.lakelog.url": url}) as session:
        yield session


@pytest.fixture
def cli(url: str, tmp_path: Path) -> Cli:
    return Cli(folder=tmp_path, env={"LAKELOG_URL": url, "JAVA_TOOL_OPTIONS": java_options(), **environment()})


@pytest.fixture
def log(url: str) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(url) as opened:
        yield opened
        for topic in opened.topics():
            opened.topic(topic.name).delete()
        for group in opened.groups():
            opened.group(group.name).delete()


class Clock:
    """A clock that only advances when the replay pauses."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def fill(log: lakelog.Lakelog, first: int, end: int, topic: str = "orders") -> None:
    """Publish numbered messages with all fields."""
    expires = datetime.now(UTC) + timedelta(days=1)
    for at in range(first, end, 2_000):
        log.topic(topic).publish_many(
            [
                lakelog.Outgoing(
                    f"{n}".encode() + b"\x00\xff",
                    key=f"k{n % 64}",
                    headers={"n": str(n)},
                    correlation_id=f"c{n}",
                    expires=expires,
                )
                for n in range(at, min(end, at + 2_000))
            ]
        )


def create(log: lakelog.Lakelog, count: int, partitions: int = 2) -> None:
    for topic in ("orders", "copies"):
        log.topic(topic).create(partitions=partitions)
    fill(log, 0, count)


def contents(log: lakelog.Lakelog, topic: str) -> list[list[dict[str, Any]]]:
    """Return what was published in each partition, in order."""
    found = []
    for part in log.topic(topic).describe().partition_list:
        batches = log.lake.read_range(topic, part.partition, part.log_start, part.high_watermark)
        found.append([row for batch in batches for row in batch.select(COLUMNS).to_pylist()])
    return found


@pytest.mark.nightly
def test_a_replay_that_was_killed_continues_and_publishes_each_message_once(
    spark: SparkSession, log: lakelog.Lakelog, cli: Cli
) -> None:
    count = replaying.BLOCK + 500
    create(log, count, partitions=1)
    with log.consumer("orders", group="billing", start_from="earliest") as live:
        held = live.batch(10, timeout=20, least=10)
        before = log.group("billing").progress("orders")
        killed = Cli(folder=cli.folder, env={**cli.env, "LAKELOG_FAILPOINTS": "replay.after_share=kill"})
        wanted = ("pipelines", "run", "replay", "orders", "--to", "copies", "--name", "copy", "--since", "1h")
        ended = killed.spawn(*wanted, code=None, timeout=SLOW)
        assert ended.code == -signal.SIGKILL, ended.err
        published = sum(map(len, contents(log, "copies")))
        assert published == replaying.BLOCK
        fill(log, count, count + 10)
        with pytest.raises(PipelineBusy):
            replay(spark, "orders", to="copies", name="copy")
        (died,) = log.pipelines.list("replay", "orders")
        log.pipelines.end(died, {}, failed=True)
        told: list[ReplaySummary] = []
        done = replay(spark, "orders", to="copies", name="copy", since="1 hour", on_progress=told.append)
        after = log.group("billing").progress("orders")
        held.ack()
    assert (done.messages, done.published, done.remaining) == (count, count, 0)
    assert told[-1] == done and len(told) == 2 and told[0].published == published
    assert contents(log, "copies") == [
        [row for row in rows if int(dict(row["headers"])["n"]) < count] for rows in contents(log, "orders")
    ]
    assert [(p.committed, p.epoch, [(lease.token, lease.offsets) for lease in p.leases]) for p in before] == [
        (p.committed, p.epoch, [(lease.token, lease.offsets) for lease in p.leases]) for p in after
    ]
    run = log.pipelines.list("replay", "orders")[0]
    assert (run.state, run.progress["published"], run.progress["remaining"]) == (RunState.DONE, count, 0)
    assert "10,500 of 10,500 messages" in cli.run("pipelines", "runs", "replay").out
    # It is complete, so Spark is not started.
    again = cli.run(*wanted, "--json").json
    assert (again["published"], again["remaining"]) == (0, 0)


def test_a_replay_that_failed_continues_in_the_middle(
    spark: SparkSession, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "BLOCK", 50)
    create(log, 240)
    failpoints.arm("replay.after_share=error@2")
    try:
        with pytest.raises(Unavailable, match="Fail point"):
            replay(spark, "orders", to="copies", name="copy")
    finally:
        failpoints.arm("")
    failed = log.pipelines.list("replay", "orders")[0]
    assert (failed.state, failed.progress["published"]) == (RunState.FAILED, 100)
    done = replay(spark, "orders", to="copies", name="copy")
    assert (done.messages, done.remaining) == (240, 0)
    assert contents(log, "copies") == contents(log, "orders")
    log.topic("others").create()
    into_another = replay(spark, "orders", to="others", name="copy", dry_run=True)
    assert into_another.remaining == 240, "the same name with another target is another replay"


def test_a_range_is_published_at_a_rate(
    spark: SparkSession, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(log, 100)
    middle = datetime.now(UTC)
    fill(log, 100, 200)
    monkeypatch.setattr(replaying, "BLOCK", 80)
    clock = Clock()
    monkeypatch.setattr(replaying, "time", clock)
    told: list[ReplaySummary] = []
    done = replay(spark, "orders", to="copies", since=middle, until=timedelta(0), rate=0.5, on_progress=told.append)
    assert len(told) == 2 and clock.now == pytest.approx(told[0].published / 0.5)
    assert (done.messages, done.published) == (100, 100)
    numbers = [int(dict(row["headers"])["n"]) for rows in contents(log, "copies") for row in rows]
    assert sorted(numbers) == list(range(100, 200))
    assert log.groups() == [], "a replay without a name stores nothing"


def test_a_dry_run_publishes_nothing(log: lakelog.Lakelog, cli: Cli) -> None:
    create(log, 50)
    runs = log.pipelines.list("replay", "orders")
    wanted = ("pipelines", "run", "replay", "orders", "--to", "copies", "--name", "copy", "--dry-run")
    assert cli.run(*wanted).out.strip() == "orders: 50 messages would be published to copies"
    line = cli.run(*wanted, "--json").json
    assert (line["messages"], line["remaining"], line["published"], line["dry_run"]) == (50, 50, 0, True)
    assert cli.run(*wanted, "--since", "2020-01-01", "--until", "2020-01-02", "--json").json["messages"] == 0
    assert contents(log, "copies") == [[], []]
    assert log.pipelines.list("replay", "orders") == runs
    with pytest.raises(GroupNotFound):
        log.group("replay-copy.copies").describe()


def test_wrong_topics_and_names_are_refused(spark: SparkSession, log: lakelog.Lakelog, cli: Cli) -> None:
    create(log, 4)
    with pytest.raises(TopicNotFound, match="'nothing'"):
        replay(spark, "orders", to="nothing")
    with pytest.raises(TopicNotFound, match="'nothing'"):
        replay(spark, "nothing", to="copies")
    log.topic("copies").replay(lambda value: None, name="taken.copies")
    with pytest.raises(Conflict, match="is one of topic 'copies', not of 'orders'"):
        replay(spark, "orders", to="copies", name="taken")
    refused = cli.run("pipelines", "run", "replay", "orders", "--to", "orders", code=1)
    assert "cannot write to the topic that it reads" in refused.err
    assert (
        "needs a fixed `until`"
        in cli.run("pipelines", "run", "replay", "orders", "--to", "copies", "--name", "x", "--until", "1h", code=1).err
    )


def test_spark_submit_can_run_it(
    spark: SparkSession, log: lakelog.Lakelog, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create(log, 20)
    for arguments, code in (["orders", "--to", "copies", "--url", url, "--dry-run"], 0), (["orders"], 2):
        with pytest.raises(SystemExit) as ended:
            submit(["replay", *arguments])
        assert ended.value.code == code
    shown = capsys.readouterr()
    assert json.loads(shown.out)["remaining"] == 20 and "Missing option '--to'" in shown.err
