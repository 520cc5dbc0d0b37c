"""Programs under a real spark-submit, whose JVM starts before the program and knows no server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

import lakelog
from tests.acceptance.client_kit import ThreadServer
from tests.acceptance.stranger import build_wheel, outside
from tests.kit.spark import QUIET, REPOSITORY, SparkCluster, environment, java_options
from tests.unit.docs.markdown import DOCS, fences

TOKEN = "a-token-that-nobody-may-see"


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_packed_environment_runs_on_a_cluster_as_the_page_says(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "tests/acceptance/spark_packed_program.py", tmp_path / "job.py")
    conf = {**QUIET, "spark.log.level": "ERROR", "spark.executor.memory": "512m"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {text}\n" for name, text in conf.items()))
    env = outside(os.environ) | {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    env["PATH"] = os.pathsep.join([str(Path(pyspark.__file__).parent / "bin"), env["PATH"]])
    with ThreadServer() as server, SparkCluster(checkout=False) as spark:
        with lakelog.connect(server.url) as log:
            log.topic("orders").create(2)
            log.topic("copies").create(1)
            log.topic("orders").publish_many([lakelog.Outgoing({"n": n}, key=f"k{n}") for n in range(100)])
        asked = {"url": server.url}
        (block,) = (
            one.text for one in fences((DOCS / "howto/run-spark-jobs.md").read_text()) if "venv-pack" in one.text
        )
        for written, here in {
            "lakelog[spark-client]": f"{build_wheel(tmp_path / 'dist')}[spark-client]",
            "spark://host:7077": spark.url,
            "  job.py": f"  job.py {shlex.quote(json.dumps(asked))}",
        }.items():
            assert block.count(written) == 1
            block = block.replace(written, here)
        done = subprocess.run(
            ["bash", "-ec", block], capture_output=True, text=True, timeout=840, env=env, cwd=tmp_path
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["driver"] == str(tmp_path / "environment")
    assert found["copies"] == sum(task["rows"] for task in found["tasks"]) == 100
    for task in found["tasks"]:
        # The archive, unpacked below the folder of a worker.
        assert Path(task["lakelog"]).is_relative_to(task["python"])
        assert not Path(task["python"]).is_relative_to(tmp_path)
