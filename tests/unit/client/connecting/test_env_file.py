"""The file of `lakelog dev`: where it is searched for, and which files are refused."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from lakelog.client.connecting import env_file
from lakelog.client.connecting.env_file import find_env_file, is_loopback, read_env_file

GOOD = "# comment\nLAKELOG_URL=http://127.0.0.1:1\nLAKELOG_TOKEN=secret\n"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder two levels below home, with nothing reported yet."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(env_file, "_reported", set())
    return folder


def write(folder: Path, text: str = GOOD) -> Path:
    path = folder / ".lakelog" / "env"
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_nearest_file_of_the_folder_and_its_parents_is_found(folder: Path) -> None:
    assert find_env_file() is None
    for place in (folder.parents[1], folder.parent, folder):
        path = write(place)
        found = find_env_file()
        assert found and found.path == path
        assert found.settings == {"LAKELOG_URL": "http://127.0.0.1:1", "LAKELOG_TOKEN": "secret"}


def test_the_search_stops_at_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    write(folder.parents[1])
    assert find_env_file() is None


def test_a_deleted_folder_has_no_file(folder: Path) -> None:
    folder.rmdir()
    assert find_env_file() is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("LAKELOG_URL=http://evil.example\nLAKELOG_TOKEN=secret\n", "LAKELOG_URL names another machine"),
        ("LAKELOG_URL=http://127.0.0.1:1,evil.example:2\n", "LAKELOG_URL names another machine"),
        ("LAKELOG_DATABASE_URL=postgresql://127.0.0.1/x?host=evil\n", "LAKELOG_DATABASE_URL names another machine"),
        ("LAKELOG_OBJECT_STORE=s3://evil/x\n", "LAKELOG_OBJECT_STORE names another machine"),
        ("LAKELOG_OBJECT_STORE=file://evil/x\n", "LAKELOG_OBJECT_STORE names another machine"),
    ],
)
def test_a_file_that_names_another_machine_is_refused(
    text: str, reason: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(folder, text)
    found = read_env_file(path)
    assert found and not found.settings
    assert f"Ignoring {path}: {reason}" in caplog.text


def test_a_refused_file_is_reported_once_and_hides_those_above(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder.parent)
    path = write(folder)
    path.chmod(0o666)
    for _ in range(3):
        found = find_env_file()
        assert found and found.path == path and not found.settings
    [record] = caplog.records
    assert record.levelno == logging.WARNING and f"chmod 600 {path}" in record.getMessage()


def test_a_file_of_another_user_is_refused(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    found = find_env_file()
    assert found and not found.settings
    assert f"Ignoring {path}: it belongs to another user (uid " in caplog.text


def test_a_file_that_is_no_text_file_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(folder)
    path.write_bytes(b"\xff\xfe")
    read_env_file(path)
    path.unlink()
    env_file._reported.clear()
    os.mkfifo(path, 0o600)
    read_env_file(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"Ignoring {path}: it is not a text file.",
        f"Ignoring {path}: it is not a file.",
    ]


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://[::1]:8080", True),
        ("http://127.0.0.1:1,localhost:2", True),
        ("postgresql://postgres:p%40w@127.0.0.1:5432/postgres", True),
        ("http://127.0.0.1@evil.example", False),
        ("http://127.0.0.1:1,http://evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://[::1", False),
        ("postgresql:///x", False),
        ("memory://localhosts", False),
    ],
)
def test_which_urls_are_of_this_machine(url: str, local: bool) -> None:
    assert is_loopback(url) is local
