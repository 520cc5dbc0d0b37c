"""Where a command finds its server, and what it says about it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from lakelog.cli.target import DEFAULT_URL, find_target, open_log


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LAKELOG_URL", "LAKELOG_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def write_env(text: str) -> Path:
    path = Path(".lakelog/env").absolute()
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_options_come_before_the_environment_before_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (find_target(None, None).url, find_target(None, None).url_source) == (DEFAULT_URL, "the built-in default")
    path = write_env("LAKELOG_URL=http://127.0.0.1:1\nLAKELOG_TOKEN=from-file\n")
    found = find_target(None, None)
    assert (found.url, found.token) == ("http://127.0.0.1:1", "from-file")
    assert found.token_source == f"LAKELOG_TOKEN in {path}"
    monkeypatch.setenv("LAKELOG_URL", "http://b:2")
    monkeypatch.setenv("LAKELOG_TOKEN", "from-env")
    found = find_target(None, None)
    assert (found.url, found.token, found.url_source) == ("http://b:2", "from-env", "LAKELOG_URL")
    found = find_target("http://c:3", "given")
    assert (found.url, found.token, found.token_source) == ("http://c:3", "given", "--token")


def test_an_empty_option_means_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_TOKEN", "from-env")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        log = open_log(f"http://127.0.0.1:{listener.getsockname()[1]}", "")
        assert log._calls.transport._inner._token == ""  # type: ignore[attr-defined]
        log.close()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_person_is_shown_that_the_file_is_used(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        write_env(f"LAKELOG_URL={url}\n")
        open_log(None, None).close()
    assert capsys.readouterr().err == (f"Using {url} from .lakelog/env\n" if terminal else "")
