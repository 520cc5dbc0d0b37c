"""The public surface, what it costs to import it, and what `connect` says about wrong arguments."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import lakelog
from lakelog.client.embedding.engine import EmbeddedEngine
from lakelog.errors import InvalidRequest, Unavailable

NAMES = [
    "ArrowBatch",
    "AsyncArrowBatch",
    "AsyncBatch",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncLakelog",
    "AsyncProducer",
    "AsyncTopic",
    "Batch",
    "Consumer",
    "Defaults",
    "Delivery",
    "Exponential",
    "FetchResult",
    "Fixed",
    "Lakelog",
    "LakelogError",
    "Message",
    "Order",
    "Outgoing",
    "PartitionInfo",
    "Producer",
    "Purged",
    "Receipt",
    "ReceivedMessage",
    "ReplayProgress",
    "Retention",
    "Run",
    "ScheduledMessage",
    "ScheduledReceipt",
    "Topic",
    "TopicInfo",
    "connect",
    "connect_async",
    "errors",
    "read_arrow",
]
HEAVY = ["pyarrow", "numpy", "httpx", "msgspec", "asyncio", "asyncpg", "pyspark", "starlette", "uvicorn", "typer"]


def test_the_public_names_are_these() -> None:
    assert sorted(lakelog.__all__) == NAMES
    for name in NAMES:
        assert getattr(lakelog, name) is not None
    with pytest.raises(AttributeError):
        _ = lakelog.nothing  # type: ignore[attr-defined]
    assert dir(lakelog) == sorted(NAMES)


def test_importing_loads_nothing_heavy_and_is_quick() -> None:
    code = (
        "import json, sys, time; before = time.process_time(); import lakelog;"
        "print(json.dumps([time.process_time() - before, sorted(sys.modules)]))"
    )
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(3)]
    assert [name for name in HEAVY if name in runs[0][1]] == []
    assert min(seconds for seconds, _ in runs) < 0.150


def test_the_generated_client_is_in_step() -> None:
    script = Path(__file__).resolve().parents[3] / "scripts/unasync.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "LAKELOG_URL"),
        ({"url": "kafka://x"}, "kafka"),
        ({"url": "file:///tmp/log"}, "file"),
        ({"url": "http://x", "project": "p"}, "token"),
        ({"url": "http://x", "token": "a\r\nb"}, "token"),
        ({"url": "http://x", "timeout": 0}, "timeout"),
    ],
)
def test_connect_says_what_is_wrong(
    arguments: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOG_URL", raising=False)
    monkeypatch.delenv("LAKELOG_TOKEN", raising=False)
    for connect in (lakelog.connect, lakelog.connect_async):
        with pytest.raises(InvalidRequest, match=said):
            connect(**arguments)  # type: ignore[arg-type]


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_URL", "memory://")
    with lakelog.connect() as log:
        assert log.topics() == []


def test_hubs_in_memory_are_shared_by_name() -> None:
    with lakelog.connect("memory://shared-by-name") as first:
        first.topic("t").create()
    with lakelog.connect("memory://shared-by-name") as again, lakelog.connect("memory://") as private:
        assert [topic.name for topic in again.topics()] == ["t"]
        assert private.topics() == []
    with lakelog.connect("memory://shared-by-name", project="other") as other:
        assert other.topics() == []


def test_a_closed_client_says_so() -> None:
    log = lakelog.connect("memory://")
    log.close()
    with pytest.raises(lakelog.errors.Closed, match=r"This client is closed\. Call lakelog\.connect\(\) again\."):
        log.topic("t")
    log.close()


def test_a_client_can_be_closed_while_its_engine_fails_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call gave up earlier than the attempt to reach the database."""

    async def refuse(settings: object) -> None:
        await asyncio.sleep(0.3)
        raise Unavailable("PostgreSQL cannot be reached.")

    monkeypatch.setattr(EmbeddedEngine, "open", refuse)
    log = lakelog.connect("postgresql://127.0.0.1:1/none", timeout=0.1)
    with pytest.raises(Unavailable):
        log.topics()
    log.close()
