"""The page "Move from a jobs table" with a million rows, two servers and a cluster: none lost, none twice.

With a few rows, the page runs in `test_examples`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.unit.docs.markdown import DOCS, blocks

PAGE = DOCS / "howto/from-a-jobs-table.md"


@pytest.mark.timeout(3600)
def test_a_million_rows_move_and_move_back(cluster: Cluster, size: Size, tmp_path: Path) -> None:
    if size is Size.CI:
        pytest.skip("only at full size; test_examples runs the page with a few rows")
    count = int(os.environ.get("JOBS", "1000000"))
    script = tmp_path / "page.py"
    script.write_text("\n".join(text for kind, text in blocks(PAGE.read_text()) if kind == "python"))
    shop = cluster.create_database()
    with Fleet(cluster, servers=2) as fleet:
        url = ",".join(f"http://127.0.0.1:{port}" for port in fleet.ports)
        env = {**os.environ, "LAKELOG_URL": url, "WAREHOUSE_URL": shop, "JOBS": str(count)}
        began = time.monotonic()
        done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    shown = "".join(text for kind, text in blocks(PAGE.read_text()) if kind == "text")
    assert done.stdout == shown, done.stdout
    with psycopg.connect(shop) as db:
        charged = db.execute("select count(*), min(job_id), max(job_id) from charge").fetchone()
        totals = db.execute("select (select sum(total) from job) = (select sum(total) from charge)").fetchone()
    cluster.drop_database(shop)
    assert charged == (count + 300, 0, count + 299) and totals == (True,)
    print(f"{count:,} rows in {time.monotonic() - began:.0f} s")
