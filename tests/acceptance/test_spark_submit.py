"""`configure` under a real spark-submit, whose JVM starts before the program and knows no server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyspark
import pytest

import lakelog
from tests.acceptance.client_kit import ThreadServer
from tests.kit.spark import QUIET, REPOSITORY, environment, java_options

TOKEN = "a-token-that-nobody-may-see"


@pytest.mark.timeout(900)
def test_configure_reaches_every_read_under_spark_submit_and_no_page_shows_the_token(tmp_path: Path) -> None:
    with ThreadServer() as server:
        with lakelog.connect(server.url) as log:
            log.topic("orders").create(1)
            log.topic("orders").publish_many([{"n": n} for n in range(10)])
        asked = {"url": server.url, "token": TOKEN, "topic": "orders", "folder": str(tmp_path)}
        conf = {
            **QUIET,
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": java_options(),
        }
        program = REPOSITORY / "tests/acceptance/spark_submit_program.py"
        argv = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", "local[1]"]
        argv += [part for name, text in conf.items() for part in ("--conf", f"{name}={text}")]
        env = {name: text for name, text in os.environ.items() if not name.startswith("LAKELOG_")} | environment()
        done = subprocess.run(
            [*argv, str(program), json.dumps(asked)], capture_output=True, text=True, timeout=880, env=env, cwd=tmp_path
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found.pop("source")).is_relative_to(REPOSITORY / "src")
    assert found == {
        "format": 10, "topic": 10, "sql": 10, "read": 9, "stream": 10, "shows_the_token": [], "pages": 7,
    }  # fmt: skip
