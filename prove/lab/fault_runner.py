"""Begins and ends the faults of a schedule, a few at a time, and records their times."""

from __future__ import annotations

import random
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.faults import KINDS, BaseFault
from prove.lab.schedule import ScheduledFault

if TYPE_CHECKING:
    from prove.lab.topology import Topology

AT_ONCE = 3


@dataclass(frozen=True, kw_only=True)
class InjectedFault:
    """A fault that was injected, with times on the machine's monotonic clock."""

    kind: str
    about: str
    began_ns: int
    ended_ns: int
    victims: frozenset[str]


class FaultRunner:
    """Runs a schedule. `run` returns when all faults have ended; `cut` ends them early."""

    def __init__(self, topology: Topology, entries: list[ScheduledFault]) -> None:
        self._topology, self._entries = topology, entries
        self._cut = threading.Event()
        self._guard = threading.Lock()
        self.happened: list[InjectedFault] = []
        self.failed: list[str] = []
        """The faults that could not be injected, each with the reason."""
        self.unmade: list[InjectedFault] = []
        """Failed faults that disturbed clients, for example by restarting a server for a fail point."""
        self.active: set[str] = set()

    def run(self) -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fault") as pool:
            for entry in self._entries:
                if self._cut.wait(max(0.0, began + entry.at - time.monotonic())):
                    return
                pool.submit(self._inject, entry)

    def cut(self) -> None:
        self._cut.set()

    def _inject(self, entry: ScheduledFault) -> None:
        if self._cut.is_set():
            return
        fault = KINDS[entry.kind]()
        fault.target = entry.target
        began = time.monotonic_ns()
        with self._guard:
            self.active.add(entry.kind)
        try:
            fault.begin(self._topology, random.Random(entry.seed))
            self._cut.wait(fault.seconds)
            self._ended(fault)
            self._note(fault, began, self.happened)
        except Busy as error:
            self._fail(fault, began, str(error))
        except Exception:
            self._ended(fault, quietly=True)
            self._fail(fault, began, traceback.format_exc(limit=4))
        finally:
            with self._guard:
                self.active.discard(entry.kind)

    def _ended(self, fault: BaseFault, *, quietly: bool = False) -> None:
        try:
            fault.end(self._topology)
        except Exception:
            fault.release(self._topology)
            if not quietly:
                raise

    def _note(self, fault: BaseFault, began: int, where: list[InjectedFault]) -> None:
        with self._guard:
            where.append(
                InjectedFault(
                    kind=fault.kind,
                    about=fault.about,
                    began_ns=fault.began_ns or began,
                    ended_ns=time.monotonic_ns(),
                    victims=fault.victims,
                )
            )

    def _fail(self, fault: BaseFault, began: int, why: str) -> None:
        fault.release(self._topology)
        if fault.has_disturbed:
            self._note(fault, began, self.unmade)
        with self._guard:
            self.failed.append(f"{fault.kind}: {why}")
