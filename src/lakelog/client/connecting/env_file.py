"""Reads `.lakelog/env`, the file in which `lakelog dev` leaves the URL, token, database and files of its server.

The file is searched for in the current folder and its parents, up to the home folder. It decides where messages and a
token are sent, and folders come from archives and other people: a file that is not the user's own, or that names
another machine, is reported and not used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from lakelog.client.processes import log

ENV_FILE = Path(".lakelog") / "env"
OBJECT_STORE = "LAKELOG_OBJECT_STORE"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MAX_BYTES = 65_536

_reported: set[Path] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFile:
    """A file and its settings. A file that must not be used has no settings."""

    path: Path
    settings: Mapping[str, str]


class _UnusableFile(Exception):
    """The error for a file that exists but must not be used. Its text says why."""


def find_env_file() -> EnvFile | None:
    """Return the nearest file of the current folder and its parents, or None if there is none."""
    files = (read_env_file(folder / ENV_FILE) for folder in _folders())
    return next((file for file in files if file is not None), None)


def read_env_file(path: Path) -> EnvFile | None:
    """Return the file, or None if it does not exist. A file that must not be used is reported once, as a warning."""
    try:
        return EnvFile(path=path, settings=_checked(_parse(_read(path))))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        _report(path, "it is not a text file.")
    except OSError as exc:
        _report(path, f"it cannot be read ({exc.strerror}).")
    except _UnusableFile as exc:
        _report(path, str(exc))
    return EnvFile(path=path, settings={})


def short_path(path: Path) -> Path:
    """Return the path as a person in the current folder would write it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def is_loopback(url: str) -> bool:
    """Return whether every host of the URL is this machine."""
    try:
        parts = urlsplit(url)
        hosts = [urlsplit(f"//{host}").hostname for host in parts.netloc.rpartition("@")[2].split(",")]
        # A PostgreSQL URL may name its host in the query instead.
        hosts += [host for name in ("host", "hostaddr") for host in parse_qs(parts.query).get(name, [])]
    except ValueError:
        return False
    return all(host in _LOOPBACK for host in hosts)


def _folders() -> Iterator[Path]:
    try:
        current = Path.cwd()
    except FileNotFoundError:
        # The folder was deleted.
        return
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (current, *current.parents):
        yield folder
        if folder == home:
            return


def _read(path: Path) -> str:
    # Without O_NONBLOCK, a named pipe of that name would block every command.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        # The state of the opened file: the name may refer to another file by now.
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise _UnusableFile("it is not a file.")
        if state.st_uid not in (0, os.geteuid()):
            raise _UnusableFile(f"it belongs to another user (uid {state.st_uid}).")
        if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _UnusableFile(f"other users can write to it. If it is yours, run `chmod 600 {path}`.")
        return file.read(_MAX_BYTES).decode()


def _parse(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _checked(settings: dict[str, str]) -> dict[str, str]:
    for name, text in settings.items():
        is_here = text.startswith("file:///") if name == OBJECT_STORE else is_loopback(text)
        if (name == OBJECT_STORE or name.endswith("_URL")) and not is_here:
            raise _UnusableFile(f"{name} names another machine. To use it, set {name} in the environment.")
    return settings


def _report(path: Path, reason: str) -> None:
    if path not in _reported:
        _reported.add(path)
        log.warning("Ignoring %s: %s", path, reason)
