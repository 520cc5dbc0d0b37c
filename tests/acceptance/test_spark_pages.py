"""The how-to pages about Spark run as written: each in its own namespace and folder, all in one session.

The tutorial is in `test_stranger`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.claims import spark_pages
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.spark import environment, java_options
from tests.unit.docs.markdown import blocks

PAGES = spark_pages()
PRINTED = {
    "stream-a-topic": ["300 rows, lag 0"],
    "write-from-spark": ["10000 messages\n", "10000 messages still"],
    "tier-to-files": ["1000 messages would go", "1000 messages in 1 segments; 1000 in the topic"],
    "keep-the-latest-value": ["10 keys of 100 messages", "9 keys after 2 more", "Oslo"],
    "read-values-as-columns": [
        "cents: long, at: timestamp, items: list<struct<sku: string, count: long>>",
        "4500 cents\n45 items\n",
        "$.cents",
    ],
    "load-history": [
        "100 rows would be loaded",
        "100 added, then 0 more",
        "31 sold in March",
        "100 copied, 31 of March",
    ],
    "replay-on-spark": ["100 messages would be published", "100 published, then 0 more; 100 in the copy"],
    "work-on-spark": ["2 dead letters"],
    "run-spark-jobs": [],
    "stream-recipes": ["cents: 14950", "refunded: 10", "history: 100", "followed: 1"],
    "repair-dead-letters": ["10 redriven", "10 booked"],
}
RUNNER = """
import os, pathlib, sys
for page in sys.argv[1:]:
    path = pathlib.Path(page)
    os.chdir(path.parent)
    print(f"== {path.stem}", flush=True)
    exec(compile(path.read_text(), page, "exec"), {"__name__": "__main__"})
    sys.stdout.flush()
print("== end", flush=True)
"""


@pytest.mark.timeout(900)
def test_python_of_the_pages_about_spark(cluster: Cluster, tmp_path: Path) -> None:
    assert {page.stem for page in PAGES} == set(PRINTED)
    scripts = []
    for page in PAGES:
        folder = tmp_path / page.stem
        folder.mkdir()
        script = folder / f"{page.stem}.py"
        script.write_text("\n".join(text for kind, text in blocks(page.read_text()) if kind == "python"))
        scripts.append(str(script))
    with Fleet(cluster, servers=1, env={"LAKELOG_OBJECT_STORE": f"file://{tmp_path}/objects"}) as fleet:
        env = {**os.environ, **environment(), "LAKELOG_URL": f"http://127.0.0.1:{fleet.ports[0]}"}
        env["PYSPARK_SUBMIT_ARGS"] = f'--conf "spark.driver.extraJavaOptions={java_options()}" pyspark-shell'
        command = [sys.executable, "-c", RUNNER, *scripts]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    for stem, expected in PRINTED.items():
        printed = done.stdout.partition(f"== {stem}\n")[2].partition("\n== ")[0]
        for text in expected:
            assert text in printed + "\n", printed
