"""The README's worker, as written: a module of a few lines, run by the commands below it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import lakelog
from tests.acceptance.cli_kit import Cli
from tests.acceptance.client_kit import ThreadServer
from tests.kit.waiting import eventually
from tests.unit.docs.markdown import ROOT, blocks, section

MAX_LINES = 12


def test_the_worker_of_the_readme(http_server: ThreadServer, tmp_path: Path) -> None:
    (_, python), (_, console) = blocks(section((ROOT / "README.md").read_text(), "Work"))
    assert len(python.splitlines()) <= MAX_LINES
    (tmp_path / "app.py").write_text(python)
    worker, describe, redrive = (re.sub(r"^\$ lakelog ", "", line) for line in console.splitlines())
    with lakelog.connect(http_server.url) as log:
        orders = log.topic("orders")
        orders.create(partitions=4)
        orders.publish_many([{"total": n} for n in range(20)])
        cli = Cli(folder=tmp_path, env={"LAKELOG_URL": http_server.url, "PYTHONUNBUFFERED": "1"})
        process = cli.popen(*worker.split())
        try:
            eventually(lambda: "billing" in [group.name for group in log.groups()], within=60)
            eventually(lambda: log.group("billing").lag() == 0, within=60)
            assert "billing" in cli.spawn(*describe.split()).out
            where = re.search(r'"(.*)"', redrive)
            assert where is not None
            arguments = redrive.replace(where[0], "WHERE").split()
            done = cli.spawn(*(where[1] if each == "WHERE" else each for each in arguments))
            assert done.json["redriven"] == 0
        finally:
            process.send_signal(signal.SIGTERM)
            printed, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert sorted(printed.decode().splitlines()) == sorted(f"billed {n} attempt 1" for n in range(20))
