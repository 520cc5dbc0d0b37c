"""Topics through Spark Connect: a client without a JVM, and a real Connect server from the pyspark package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import lakelog
from tests.acceptance.client_kit import ThreadServer
from tests.kit.ports import free_port
from tests.kit.process import Supervisor
from tests.kit.spark import QUIET, REPOSITORY, environment, java_options


@pytest.mark.timeout(900)
def test_a_connect_client_reads_streams_and_writes_topics(tmp_path: Path) -> None:
    with ThreadServer(f"file://{tmp_path}/objects") as server, Supervisor() as supervisor:
        with lakelog.connect(server.url) as log:
            log.topic("orders").create(1)
            log.topic("copy").create(1)
            log.topic("replayed").create(1)
            log.topic("orders").publish_many([{"n": n} for n in range(10)])
        remote = _connect_server(supervisor)
        found = _run({"remote": remote, "url": server.url, "topic": "orders", "folder": str(tmp_path)})
    assert found["attach"] == {"lakelog_orders": "orders"}
    assert {name: found[name] for name in ("topic", "format", "read", "sql", "stream")} == {
        "topic": 5, "format": 10, "read": 9, "sql": 10, "stream": 10,
    }  # fmt: skip
    assert {name: found[name] for name in ("subscribe", "replay", "tier")} == {
        "subscribe": 10, "replay": 10, "tier": 10,
    }  # fmt: skip


def _connect_server(supervisor: Supervisor) -> str:
    home, port = Path(pyspark.__file__).parent, free_port()
    conf = {
        **QUIET,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": java_options(),
    }
    argv = [str(home / "bin/spark-submit"), "--master", "local[1]"]
    argv += [part for name, text in conf.items() for part in ("--conf", f"{name}={text}")]
    argv += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    env = {**environment(), "SPARK_HOME": str(home)}
    supervisor.start(argv, env=env, ready=f"tcp://127.0.0.1:{port}", name="spark-connect", within=300)
    return f"sc://127.0.0.1:{port}"


def _run(asked: dict[str, str]) -> dict[str, Any]:
    argv = [sys.executable, "-m", "tests.acceptance.spark_connect_program"]
    # The client finds neither the server of Lakelog nor Java in its environment.
    env = {name: text for name, text in os.environ.items() if not name.startswith("LAKELOG_")} | environment()
    env["JAVA_HOME"] = "/nonexistent"
    done = subprocess.run(
        argv, input=json.dumps(asked), capture_output=True, text=True, timeout=800, env=env, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
