"""Which databases a command works on, and how long a start waits for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from lakelog.cli.app import app
from lakelog.cli.databases import find_cells, find_database, find_object_store, patiently
from lakelog.errors import ConfigurationError, Unavailable
from lakelog.model.topic import Scope


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LAKELOG_DATABASE_URL", "LAKELOG_CELLS", "LAKELOG_OBJECT_STORE"):
        monkeypatch.delenv(name, raising=False)


def test_the_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_DATABASE_URL", "postgresql://b")
    assert find_database("postgresql://a") == "postgresql://a"
    assert find_database(None) == "postgresql://b"


def test_cells_come_from_options_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_cells(None) == {}
    monkeypatch.setenv("LAKELOG_CELLS", '{"x": "postgresql://x"}')
    assert find_cells(None) == {"x": "postgresql://x"}
    assert find_cells(["y=postgresql://y?a=b"]) == {"y": "postgresql://y?a=b"}
    monkeypatch.setenv("LAKELOG_CELLS", "[1]")
    with pytest.raises(typer.BadParameter, match="LAKELOG_CELLS"):
        find_cells(None)


def test_the_files_of_a_development_server_belong_to_its_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = "postgresql://127.0.0.1:1/mine"
    (tmp_path / ".lakelog").mkdir()
    (tmp_path / ".lakelog/env").write_text(f"LAKELOG_DATABASE_URL={mine}\nLAKELOG_OBJECT_STORE=file:///mine\n")
    assert find_object_store(None, find_database(None)) == "file:///mine"
    assert find_object_store(None, "postgresql://127.0.0.1:1/other") is None
    assert find_object_store("file:///given", mine) == "file:///given"
    monkeypatch.setenv("LAKELOG_OBJECT_STORE", "s3://set/here")
    assert find_object_store(None, "postgresql://127.0.0.1:1/other") == "s3://set/here"


def test_a_restore_reads_the_files_of_the_development_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = []

    def connect(url: str, **arguments: object) -> None:
        given.append(arguments["object_store"])
        raise Unavailable("Not needed.")

    (tmp_path / ".lakelog").mkdir()
    (tmp_path / ".lakelog/env").write_text(
        "LAKELOG_DATABASE_URL=postgresql://127.0.0.1:1/mine\nLAKELOG_OBJECT_STORE=file:///mine\n"
    )
    scope = Scope(project="shop", environment="live", environment_id=1)
    topics = [SimpleNamespace(name="orders", scope=scope)]
    monkeypatch.setattr("lakelog.cli.backup.with_catalog", lambda url, work: (topics, 1))
    monkeypatch.setattr("lakelog.connect", connect)
    assert CliRunner().invoke(app, ["backup", "restore", "--dry-run"]).exit_code != 0
    assert given == ["file:///mine"]


async def test_a_start_is_patient_for_its_time_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    tries = iter([Unavailable("Not yet."), Unavailable("Not yet."), None])

    async def attempt() -> str:
        if error := next(tries):
            raise error
        return "open"

    assert await patiently(attempt, pause=0) == "open"
    first, last = caplog.messages
    assert first == "Not yet. Retrying for 60 s." and last.startswith("PostgreSQL is available after ")


async def test_a_start_gives_up_in_the_end() -> None:
    async def attempt() -> str:
        raise Unavailable("Never.")

    with pytest.raises(Unavailable, match=r"Never\. Tried for 0\.05 s\. Start PostgreSQL"):
        await patiently(attempt, limit=0.05, pause=0)


async def test_what_waiting_cannot_mend_is_said_at_once() -> None:
    tries = 0

    async def attempt() -> str:
        nonlocal tries
        tries += 1
        raise ConfigurationError("Wrong password.")

    with pytest.raises(ConfigurationError):
        await patiently(attempt)
    assert tries == 1
