"""A topic with its history on S3, read on a standalone cluster: by s3a, by our own tasks, and the hot rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import lakelog
from tests.kit.cold import tier_by_hand
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.s3 import S3Server
from tests.kit.spark import REPOSITORY, SparkCluster, environment


@pytest.mark.nightly
@pytest.mark.timeout(480)
def test_history_on_s3_read_by_executors_s22(cluster: Cluster) -> None:
    with S3Server() as s3, Fleet(cluster, servers=1, env={"LAKELOG_OBJECT_STORE": s3.url, **s3.env}) as fleet:
        url = f"http://127.0.0.1:{fleet.ports[0]}"
        with lakelog.connect(url) as log:
            topic = log.topic("orders")
            topic.create(2)
            for partition in (0, 1):
                for _ in range(3):
                    topic.publish_many([lakelog.Outgoing("cold", partition=partition)] * 500)
            segments = tier_by_hand(log, "orders", segment_bytes=1, options=s3.options)
            for partition in (0, 1):
                topic.publish_many([lakelog.Outgoing("hot", partition=partition)] * 200)
        with SparkCluster() as spark:
            conf = {**s3.spark_conf, "spark.executor.memory": "512m"}
            asked = {"conf": conf, "master": spark.url, "topic": "orders", "url": url, "start": 700}
            found = _run(asked)
    whole = [[0, 1700, 0, 1699, 1700], [1, 1700, 0, 1699, 1700]]
    assert found["topic"] == found["source"] == whole
    assert found["part"] == [[0, 1000, 700, 1699, 1000], whole[1]]
    assert sorted(found["files"]) == sorted(f"s3a{s3.url.removeprefix('s3')}/{one.path}" for one in segments)
    assert found["executors"] == 2


def _run(asked: dict[str, object]) -> dict[str, Any]:
    argv = [sys.executable, "-m", "tests.acceptance.spark_read_program"]
    env = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")} | environment()
    done = subprocess.run(
        argv, input=json.dumps(asked), capture_output=True, text=True, timeout=400, env=env, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found
