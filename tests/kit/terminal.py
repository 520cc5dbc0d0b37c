"""A terminal of 80 columns: commands run in it one after another, and share folder and variables as in a shell."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from tests.kit.waiting import NeverTrue, eventually

COLUMNS, ROWS = 80, 24
PATIENCE_SECONDS = 300.0
"""How long a command may take; installing a package takes minutes on a busy machine."""
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")


def shown(printed: str) -> str:
    """Return what a terminal shows: without colours, and with only the last state of an overwritten line."""
    text = _ESCAPE.sub("", printed).replace("\r\n", "\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class Running:
    """A command in its own pseudo-terminal; what it prints is kept."""

    def __init__(self, argv: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self._printed = bytearray()
        self._code: int | None = None
        self._terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            argv,
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=folder,
            env=env,
            start_new_session=True,
            # The terminal becomes the controlling terminal of the session, so that Ctrl-C reaches its processes.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(end)
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def printed(self) -> str:
        """Return what the terminal shows."""
        return shown(bytes(self._printed).decode(errors="replace"))

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def has_ended(self) -> bool:
        return self._code is not None

    def wait(self, within: float) -> int:
        """Return the exit code when the command has ended and all its output is read."""
        eventually(self.has_ended, within=within, what="the end of the command")
        assert self._code is not None
        return self._code

    def end(self) -> None:
        """Press Ctrl-C, and kill the command if it does not end."""
        if not self.has_ended():
            self.press_ctrl_c()
            with contextlib.suppress(AssertionError):
                self.wait(within=30)
        if not self.has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self.wait(within=10)

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._terminal, 65536)
            except OSError:
                break  # Linux reports the end of a pseudo-terminal as an error.
            if not part:
                break
            self._printed += part
        self._code = self._process.wait()
        os.close(self._terminal)


class Terminal:
    """Runs commands with bash. Services run until the terminal is closed."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._state = folder.parent / f"{folder.name}.variables"
        self._state.write_text("")
        self._env = {**env, "TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        self._services: list[Running] = []

    def start(self, command: str) -> Running:
        script = f". '{self._state}'\n{command}\nstatus=$?\nexport -p >'{self._state}'\nexit $status"
        return Running(["bash", "-c", script], self._folder, self._env)

    def run(self, command: str, within: float = PATIENCE_SECONDS) -> tuple[str, int]:
        """Run a command to its end. Return its output and its exit code."""
        running = self.start(command)
        try:
            code = running.wait(within)
        finally:
            running.end()
        return running.printed, code

    def serve(self, command: str, is_ready: Callable[[str], bool], within: float = PATIENCE_SECONDS) -> str:
        """Start a command in the background. Return its output when it is ready."""
        running = self.start(command)
        self._services.append(running)
        return _await(running, is_ready, within)

    def answer(self, command: str, question: str, answer: str, within: float = PATIENCE_SECONDS) -> tuple[str, int]:
        """Run a command that asks a question, and answer it. Return its output and its exit code."""
        running = self.start(command)
        try:
            _await(running, lambda printed: question in printed, within)
            running.type(f"{answer}\n")
            code = running.wait(within)
        finally:
            running.end()
        return running.printed, code

    def interrupt(
        self, command: str, is_ready: Callable[[str], bool], within: float = PATIENCE_SECONDS
    ) -> tuple[str, int]:
        """Run a command until it prints the expected text, press Ctrl-C, and wait for its end."""
        running = self.start(command)
        try:
            _await(running, is_ready, within)
            running.press_ctrl_c()
            code = running.wait(within=60)
        finally:
            running.end()
        return running.printed, code

    def close(self) -> None:
        for running in reversed(self._services):
            running.end()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _await(running: Running, is_ready: Callable[[str], bool], within: float) -> str:
    """Return the output when the command is ready, has ended or has timed out: the caller compares it."""
    with contextlib.suppress(NeverTrue):
        eventually(lambda: running.has_ended() or is_ready(running.printed), within=within, every=0.05)
    return running.printed
