"""Where a client finds the URL and the token of its server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import lakelog
from lakelog.client.connecting.target import find_target
from lakelog.errors import InvalidRequest, NotAuthenticated, Unavailable


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LAKELOG_URL", "LAKELOG_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder.parent


def write_env(folder: Path, url: str = "http://127.0.0.1:1") -> Path:
    path = folder / ".lakelog" / "env"
    path.parent.mkdir()
    path.write_text(f"LAKELOG_URL={url}\nLAKELOG_TOKEN=from-file\n")
    return path


def test_arguments_come_before_the_environment_before_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_env(folder)
    found = find_target(None, None)
    assert (found.url, found.url_source) == ("http://127.0.0.1:1", f"LAKELOG_URL in {path}")
    assert (found.token, found.token_source) == ("from-file", f"LAKELOG_TOKEN in {path}")
    assert found.notice == f"Using http://127.0.0.1:1 from {path}"
    monkeypatch.setenv("LAKELOG_TOKEN", "from-env")
    found = find_target(None, None)
    assert (found.url, found.token, found.token_source) == ("http://127.0.0.1:1", "from-env", "LAKELOG_TOKEN")
    monkeypatch.setenv("LAKELOG_URL", "http://b:2")
    found = find_target(None, None)
    assert (found.url, found.url_source, found.notice) == ("http://b:2", "LAKELOG_URL", None)
    found = find_target("http://c:3", "given")
    assert (found.url, found.token, found.token_source) == ("http://c:3", "given", "")


def test_the_files_token_goes_to_the_files_url_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_env(folder)
    for other in ("http://example.org", "http://127.0.0.1:2", "https://127.0.0.1:1"):
        found = find_target(other, None)
        assert (found.token, found.token_source, found.notice) == (None, "", None)
        monkeypatch.setenv("LAKELOG_URL", other)
        assert find_target(None, None).token is None
    found = find_target("http://127.0.0.1:1/", None)
    assert (found.token, found.notice) == ("from-file", f"Using the token from {path}")


def test_an_empty_token_means_no_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_env(folder)
    monkeypatch.setenv("LAKELOG_TOKEN", "from-env")
    found = find_target(None, "")
    assert not found.token and found.token_source == ""


def test_connect_finds_the_file_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequest, match="LAKELOG_URL"):
        lakelog.connect()
    path = write_env(folder)
    for connect in (lakelog.connect, lakelog.connect_async):
        with caplog.at_level(logging.INFO, "lakelog"):
            connect()
        assert [record.getMessage() for record in caplog.records] == [f"Using http://127.0.0.1:1 from {path}"]
        caplog.clear()


def test_a_target_does_not_show_its_secrets(folder: Path) -> None:
    write_env(folder)
    assert "from-file" not in repr(find_target(None, None))
    assert find_target("postgresql://user:p@ss@host:1/db", None).place == "postgresql://host:1/db"


def test_errors_say_where_the_url_and_the_token_came_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_env(folder)
    refused, unreachable = NotAuthenticated("No."), Unavailable("Away.", unreachable="server")
    found = find_target(None, None)
    assert found.explain(refused).detail == f"No. The token came from LAKELOG_TOKEN in {path}."
    assert found.explain(unreachable).detail == f"Away. The URL came from LAKELOG_URL in {path}."
    assert found.explain(unreachable).unreachable == "server"
    monkeypatch.setenv("LAKELOG_TOKEN", "wrong")
    assert find_target(None, None).explain(refused).detail == "No. The token came from LAKELOG_TOKEN."
    bare = find_target("http://a:1", "")
    assert bare.explain(refused).detail == "The server at http://a:1 requires a token. Pass one, or set LAKELOG_TOKEN."
    assert bare.explain(unreachable) is unreachable
    database = Unavailable("Away.", unreachable="database")
    assert found.explain(database) is database
