"""Where the server's address and the token come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.cli.target import DEFAULT_URL, find_target


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LAKELOG_URL", "LAKELOG_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def write_env(text: str) -> None:
    Path(".lakelog").mkdir()
    Path(".lakelog/env").write_text(text)


def test_options_come_before_the_environment_before_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_target(None, None).url == DEFAULT_URL
    write_env("# comment\nLAKELOG_URL=http://127.0.0.1:1\nLAKELOG_TOKEN=from-file\n")
    found = find_target(None, None)
    assert (found.url, found.token) == ("http://127.0.0.1:1", "from-file")
    assert found.url_source == found.token_source == ".lakelog/env"
    monkeypatch.setenv("LAKELOG_URL", "http://b:2")
    monkeypatch.setenv("LAKELOG_TOKEN", "from-env")
    found = find_target(None, None)
    assert (found.url, found.token, found.url_source) == ("http://b:2", "from-env", "LAKELOG_URL")
    found = find_target("http://c:3", "given")
    assert (found.url, found.token, found.token_source) == ("http://c:3", "given", "--token")


def test_the_folders_token_goes_to_its_own_server_only() -> None:
    write_env("LAKELOG_URL=http://127.0.0.1:1\nLAKELOG_TOKEN=secret\n")
    elsewhere = find_target("http://example.org", None)
    assert elsewhere.token is None and "--token" in elsewhere.token_source


def test_a_folder_cannot_lead_away_from_this_machine() -> None:
    write_env("LAKELOG_URL=http://evil.example\nLAKELOG_TOKEN=secret\n")
    found = find_target(None, None)
    assert (found.url, found.token) == (DEFAULT_URL, None)
