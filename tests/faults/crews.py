"""Crews of worker processes for the fault scenarios: started, killed and replaced; and the truth when all is done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lakelog.model.group import Exponential
from tests.faults.lease_worker import Plan
from tests.kit.fleet import Fleet
from tests.kit.lease_checkers import LeaseTruth, Rules
from tests.kit.lease_history import LeaseRecorder, ProgressSeen
from tests.kit.lease_owner import HttpOwner
from tests.kit.process import Process, Supervisor
from tests.kit.waiting import eventually

Places = dict[tuple[int, int], tuple[str | None, str]]
"""Key and value of each message."""


def settings_of(retries: Exponential) -> dict[str, Any]:
    """What a consume says of a group that begins at the first message."""
    said = {
        "max": retries.max,
        "strategy": "exponential",
        "base_ms": round(retries.base_seconds * 1000),
        "max_ms": round(retries.max_seconds * 1000),
        "jitter": retries.jitter,
    }
    return {"start_from": "earliest", "retries": said}


def publish(fleet: Fleet, topic: str, messages: Sequence[tuple[str | None, str]], *, server: int = 0) -> Places:
    """Publishes in batches; where each message is."""
    places: Places = {}
    for first in range(0, len(messages), 1000):
        chosen = messages[first : first + 1000]
        body = {"messages": [{"key": key, "value": value} for key, value in chosen]}
        answer = fleet.request("POST", f"/v1/topics/{topic}/messages", body, server=server)
        for message, result in zip(chosen, answer["results"], strict=True):
            places[result["partition"], result["offset"]] = message
    return places


class Crew:
    """Worker processes with a history each; one that is killed is replaced under a new name."""

    def __init__(self, supervisor: Supervisor, plan: Plan, size: int) -> None:
        self._supervisor = supervisor
        self._plan = plan
        self._number = 0
        self.killed: list[str] = []
        self.workers: list[tuple[str, Process]] = []
        for _ in range(size):
            self._start()

    def _start(self) -> None:
        name = f"w{self._number}"
        plan = msgspec.structs.replace(self._plan, name=name, seed=self._number)
        self._number += 1
        argv = [sys.executable, "-m", "tests.faults.lease_worker", msgspec.json.encode(plan).decode()]
        self.workers.append((name, self._supervisor.start(argv, name="worker")))

    def kill_one(self) -> None:
        """The oldest, by -9; another takes its place."""
        name, process = self.workers.pop(0)
        assert process.running, process.log_text()[-2000:]
        process.kill9()
        # One that was killed before its first line has no history.
        if (Path(self._plan.folder) / f"{name}.jsonl").exists():
            self.killed.append(name)
        self._start()

    def check(self) -> None:
        for _, process in self.workers:
            assert process.running, process.log_text()[-2000:]

    def stop(self) -> None:
        Path(self._plan.stop).touch()
        for _, process in self.workers:
            assert process.wait(timeout=60) == 0, process.log_text()[-2000:]


class Sampler(threading.Thread):
    """Asks for the group's progress again and again, and records it."""

    def __init__(self, owner: HttpOwner, every: float = 0.25) -> None:
        super().__init__(daemon=True)
        self._owner, self._every = owner, every
        self._stop_asked = threading.Event()
        self.last: list[ProgressSeen] = []

    def run(self) -> None:
        while not self._stop_asked.wait(self._every):
            try:
                self.last = self._owner.progress() or self.last
            except AssertionError:
                continue

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        self._owner.close()


def drained(parts: Iterable[ProgressSeen], messages: int) -> bool:
    """Whether everything is finished."""
    return sum(part.finished for part in parts) == messages


def await_drained(sampler: Sampler, crew: Crew, messages: int, within: float) -> None:
    def done() -> bool:
        crew.check()
        return drained(sampler.last, messages)

    try:
        eventually(done, within=within, every=0.1)
    except AssertionError as error:
        raise AssertionError(f"not drained: {sampler.last}") from error


def truth_of(
    fleet: Fleet, folder: Path, topic: str, group: str, places: Mapping[tuple[int, int], tuple[str | None, str]],
    rules: Rules, *, start: int = 0,
) -> LeaseTruth:  # fmt: skip
    """What the servers say when all is done."""
    asker = HttpOwner(LeaseRecorder(folder, f"truth-{time.monotonic_ns()}"), fleet.ports, topic, group)
    progress = asker.progress(start=start)
    dead = asker.dead_letters()
    asker.close()
    keys = {place: key for place, (key, _) in places.items()}
    return LeaseTruth(topic=topic, group=group, keys=keys, progress=progress, dead=dead, rules=rules)
