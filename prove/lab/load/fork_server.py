"""Starts client processes by forking, so that a killed one is replaced in milliseconds.

`python -m prove.lab.load.fork_server SOCKET` reads `{"module", "plan"}` lines, writes `{"started", "pid"}`, and
`{"ended", "code"}` for each. The child processes end with the fork server.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

LOAD = "prove.lab.load"
"""The package of modules that are named without a package."""
_DEATH_SIGNAL = 1


class ForkServer:
    """A loop that starts children and reaps them."""

    def __init__(self, path: str) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(path)
        self._buffer = b""
        self._children: dict[int, str] = {}
        self._modules: dict[str, ModuleType] = {}

    def run(self) -> None:
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._link, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(1.0):
                    if key.fileobj is wake:
                        with contextlib.suppress(BlockingIOError):
                            wake.recv(4096)
                    else:
                        for order in self._orders():
                            self._start(order["module"], order["plan"])
                self._reap()

    def _orders(self) -> Iterator[dict[str, Any]]:
        data = self._link.recv(1 << 16)
        if not data:
            sys.exit(0)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line)

    def _start(self, module: str, plan: dict[str, Any]) -> None:
        name = str(plan["name"])
        if module not in self._modules:
            # Imported once, before the fork. A run without tiering never loads Spark.
            self._modules[module] = importlib.import_module(module if "." in module else f"{LOAD}.{module}")
        pid = os.fork()
        if pid == 0:
            self._run_child(module, plan, name)
        self._children[pid] = name
        self._send({"started": name, "pid": pid})

    def _run_child(self, module: str, plan: dict[str, Any], name: str) -> None:
        code = 1
        try:
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._link.close()
            log = os.open(Path(plan["folder"]) / "logs" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            self._modules[module].main(msgspec.json.encode(plan))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._send({"ended": self._children.pop(pid), "code": os.waitstatus_to_exitcode(status)})

    def _send(self, fact: dict[str, Any]) -> None:
        self._link.sendall(msgspec.json.encode(fact) + b"\n")


if __name__ == "__main__":
    ForkServer(sys.argv[1]).run()
