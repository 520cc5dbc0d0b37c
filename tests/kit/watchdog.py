"""Ends what a killed test run left behind: its processes with their children, and its folders.

A child process holds one end of a pipe. When the test run ends in any way, the pipe closes and the child cleans up.
PR_SET_PDEATHSIG would miss the children of a process, and fires when the thread that started it ends. This is a safety
net: while the run is alive, `Process` and `Cluster` clean up after themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import IO

import psutil

_guard = threading.Lock()
_pipe: IO[str] | None = None
_owner = 0


def watch_process(pid: int) -> None:
    _tell(f"+process {pid}")


def forget_process(pid: int) -> None:
    _tell(f"-process {pid}")


def watch_folder(path: str) -> None:
    _tell(f"+folder {path}")


def forget_folder(path: str) -> None:
    _tell(f"-folder {path}")


def end_tree(pid: int) -> list[psutil.Process]:
    """Kill a process, its group and its descendants; return those that were signalled, for the caller to await."""
    try:
        leader = psutil.Process(pid)
        # Stopped first, so that it starts no child between listing and killing.
        leader.suspend()
        tree = [leader, *leader.children(recursive=True)]
    except psutil.NoSuchProcess:
        tree = []
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return tree


def _tell(line: str) -> None:
    global _pipe, _owner
    with _guard:
        if _pipe is None or _owner != os.getpid():
            _pipe, _owner = _start(), os.getpid()
        _pipe.write(line + "\n")
        _pipe.flush()


def _start() -> IO[str]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.watchdog"],
        cwd=root,
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdin is not None
    atexit.register(_finish, child, os.getpid())
    return child.stdin


def _finish(child: subprocess.Popen[str], owner: int) -> None:
    # A forked copy of the test run inherits the registration, but not the child.
    if os.getpid() == owner and child.stdin is not None:
        child.stdin.close()
        child.wait(timeout=30)


def _main() -> None:
    processes: dict[str, None] = {}
    folders: dict[str, None] = {}
    for line in sys.stdin:
        verb, _, subject = line.rstrip("\n").partition(" ")
        kept = processes if verb.endswith("process") else folders
        if verb.startswith("+"):
            kept[subject] = None
        else:
            kept.pop(subject, None)
    for pid in processes:
        end_tree(int(pid))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main()
