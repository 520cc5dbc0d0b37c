"""The page "Give a topic a schema": its Python blocks run in order, and print what the page shows."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/howto/give-a-topic-a-schema.md"


def test_the_page_runs_and_prints_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKELOG_URL", f"memory://{uuid.uuid4().hex}")
    text = PAGE.read_text()
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    finally:
        names["log"].close()
    [shown] = re.findall(r"```text\n(/amount.*?)```", text, re.DOTALL)
    assert capsys.readouterr().out == shown
