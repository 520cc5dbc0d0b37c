"""The client processes of a run: started, stopped, killed, and replaced under a new name.

A process's name is used once, also in its history. `crashed` has those that were killed: only they may lack their end.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from prove.lab.load.calls import TOKEN
from prove.lab.load.plan import Plan
from prove.lab.shared_progress import Board, Field
from tests.kit.process import Supervisor
from tests.kit.waiting import eventually


@dataclass(eq=False)
class Hand:
    """One client process."""

    name: str
    role: str
    slot: int
    pid: int = 0
    code: int | None = None
    started: threading.Event = field(default_factory=threading.Event)

    @property
    def running(self) -> bool:
        return self.started.is_set() and self.code is None


MakePlan = Callable[[str, int, str], Plan]
"""From a name, a slot, and the name of the killed one that it replaces, if any."""


class Crew:
    """`crew.hire("billing", "worker", 3, make_plan)` keeps three of them at work until `crew.dismiss("billing")`."""

    def __init__(self, supervisor: Supervisor, folder: Path, ports: Sequence[int], *, path: str, token: str) -> None:
        """`path` is where processes import from, `token` what they show to servers."""
        self.folder = folder
        self.ports = list(ports)
        self._environment = {"PYTHONPATH": path, TOKEN: token}
        for name in ("history", "stop", "logs", "pending", "points"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.board = Board(folder / "board")
        self.hands: list[Hand] = []
        self.broken: list[str] = []
        """What ended as nothing should: its name and the end of its log."""
        self._supervisor = supervisor
        self._staff: dict[str, tuple[str, MakePlan]] = {}
        self._guard = threading.RLock()
        self._closing = False

    def __enter__(self) -> Crew:
        path = str(self.folder / "fork-server")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        argv = [sys.executable, "-m", "prove.lab.load.fork_server", path]
        self._process = self._supervisor.start(argv, env=self._environment, name="fork-server")
        listener.settimeout(60)
        self._link, _ = listener.accept()
        self._link.settimeout(None)
        listener.close()
        self._thread = threading.Thread(target=self._listen, name="crew", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        self._process.kill9()
        self._link.close()

    # Staff ------------------------------------------------------------------------------------------------------------

    def hire(self, role: str, module: str, count: int, make: MakePlan) -> list[Hand]:
        """So many processes of a role; who is killed is replaced."""
        with self._guard:
            self._staff[role] = (module, make)
            return [self._start(role) for _ in range(count)]

    def dismiss(self, *roles: str, within: float = 20.0) -> None:
        """Tells them to end, and waits; who does not is killed."""
        for role in roles:
            with self._guard:
                self._staff.pop(role, None)
            (self.folder / "stop" / role).touch()
        late = time.monotonic() + within
        for hand in [hand for hand in self.hands if hand.role in roles]:
            while hand.code is None and time.monotonic() < late:
                time.sleep(0.02)
            if hand.code is None:
                self.kill9(hand)

    def of(self, *roles: str) -> list[Hand]:
        """Those at work."""
        with self._guard:
            return [hand for hand in self.hands if hand.running and hand.role in roles]

    def pick(self, chance: random.Random, *roles: str) -> Hand:
        """Somebody at work, as soon as there is one."""
        return chance.choice(eventually(lambda: self.of(*roles), within=10, what=f"a {' or '.join(roles)} at work"))

    @property
    def crashed(self) -> list[str]:
        return [hand.name for hand in self.hands if hand.code is not None and hand.code != 0]

    # What faults do to them -------------------------------------------------------------------------------------------

    def busy(self, hand: Hand) -> int:
        return self.board.get(hand.slot, Field.BUSY)

    def await_busy(self, hand: Hand, *, within: float) -> bool:
        """Until a call of it is on its way, or it has messages in hand."""
        until = time.monotonic() + within
        while hand.running and time.monotonic() < until:
            if self.busy(hand):
                return True
            time.sleep(0.001)
        return False

    def kill9(self, hand: Hand) -> None:
        self._signal(hand, signal.SIGKILL)
        eventually(lambda: hand.code is not None, within=10, what=f"{hand.name} is gone")

    def stop(self, hand: Hand) -> None:
        self._signal(hand, signal.SIGSTOP)

    def cont(self, hand: Hand) -> None:
        self._signal(hand, signal.SIGCONT)

    def resume_all(self) -> None:
        for hand in self.hands:
            if hand.running:
                self.cont(hand)

    def _signal(self, hand: Hand, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if hand.code is None:
                os.kill(hand.pid, number)

    # The fork server -------------------------------------------------------------------------------------------------

    def _start(self, role: str, after: str = "") -> Hand:
        module, make = self._staff[role]
        number = len(self.hands)
        hand = Hand(name=f"{role}-{number}", role=role, slot=number)
        self.hands.append(hand)
        plan = make(hand.name, hand.slot, after)
        order: dict[str, Any] = {"module": module, "plan": msgspec.to_builtins(plan)}
        self._link.sendall(msgspec.json.encode(order) + b"\n")
        return hand

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._link.makefile("rb") as lines:
            for line in lines:
                self._hear(msgspec.json.decode(line))
        if not self._closing:
            self.broken.append(f"the fork server ended: {self._process.log_text()[-3000:]}")

    def _hear(self, fact: dict[str, Any]) -> None:
        with self._guard:
            name = fact.get("started") or fact.get("ended")
            hand = next(hand for hand in reversed(self.hands) if hand.name == name)
            if "started" in fact:
                hand.pid = fact["pid"]
                hand.started.set()
                return
            hand.code = fact["code"]
            self.board.put(hand.slot, Field.BUSY, 0)
            if hand.code not in (0, -signal.SIGKILL):
                self.broken.append(f"{name}: {self._log_of(hand)}")
            if hand.role in self._staff and not self._closing:
                self._start(hand.role, hand.name)

    def _log_of(self, hand: Hand) -> str:
        path = self.folder / "logs" / f"{hand.name}.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else "it left no log"
