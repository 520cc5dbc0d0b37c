"""The script against an installation in memory."""

from pathlib import Path

import pytest
from import_orders import main, publish

import lakelog
from lakelog.testing import MemoryInstallation

LINES = ["id,account,total", "o1,a1,30", "o2,a2,12"]


def test_running_it_again_publishes_only_what_is_new(
    lakelog_memory: MemoryInstallation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "orders.csv"
    monkeypatch.setattr("sys.argv", ["import-orders", str(file)])
    for lines in (LINES, [*LINES, "o3,a1,7"]):
        file.write_text("\n".join(lines))
        main()
    assert capsys.readouterr().out == "2 orders are published\n3 orders are published\n"
    found = lakelog_memory.published("orders")
    assert sorted(message.value["id"] for message in found) == ["o1", "o2", "o3"]


def test_a_bad_line_stops_it(lakelog_memory: MemoryInstallation) -> None:
    with lakelog.connect() as log, pytest.raises(ValueError, match="invalid literal"):
        publish(log, [*LINES, "o3,a1,much"])
