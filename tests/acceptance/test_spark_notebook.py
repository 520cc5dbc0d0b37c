"""The notebook of the tutorial runs in a Jupyter kernel, and each cell prints what the notebook shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from scripts.notebook import NOTEBOOK
from tests.kit.fleet import Fleet
from tests.kit.pages import matches
from tests.kit.postgres import Cluster
from tests.kit.spark import environment, java_options
from tests.kit.terminal import shown


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_each_cell_prints_what_the_notebook_shows(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Fleet(cluster, servers=1, env={"LAKELOG_OBJECT_STORE": f"file://{tmp_path}/objects"}) as fleet:
        (tmp_path / ".lakelog").mkdir()
        env_file = tmp_path / ".lakelog/env"
        env_file.write_text(f"LAKELOG_URL=http://127.0.0.1:{fleet.ports[0]}\nLAKELOG_TOKEN=\n")
        env_file.chmod(0o600)
        for name, text in environment().items():
            monkeypatch.setenv(name, text)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv(
            "PYSPARK_SUBMIT_ARGS", f'--conf "spark.driver.extraJavaOptions={java_options()}" pyspark-shell'
        )
        page = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
        run = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
        NotebookClient(run, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for expected, cell in zip(page.cells, run.cells, strict=True):
        if expected.cell_type == "code" and expected.outputs:
            # Jupyter runs commands in a terminal.
            printed = shown("".join(each.text for each in cell.outputs if each.get("name") == "stdout"))
            assert matches(expected.outputs[0].text, printed), f"{expected.source}\n{printed}"
