"""Worker processes of the fault scenarios: started, killed and replaced; and the final state to compare with."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lakelog.model.group import RetryPolicy
from prove.checker import l5_redelivery as l5
from prove.checker.catalog import INVARIANTS
from prove.checker.invariant import CheckScope, GroupRules, RunInfo
from prove.checker.judgement import assert_valid, judge_tables
from prove.checker.lease_history import leases_of
from prove.checker.scopes import instances
from prove.history.lines import ProgressSeen
from prove.history.loading import History, load_files
from prove.history.recorder import HistoryRecorder
from prove.history.tables import CallOutcome, Tables, columns, joined, text_id
from tests.faults.lease_worker import Plan
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import DeadSeen, HttpOwner
from tests.kit.process import Process, Supervisor
from tests.kit.waiting import eventually

Places = dict[tuple[int, int], tuple[str | None, str]]
"""Key and value of each message."""
LOG = tuple(f"S{number}" for number in range(1, 8))
LEASES = (*(f"S{number}" for number in range(8, 17)), "L5")
"""The invariants for scenarios of publishing, and for those of leases."""


def settings_of(retries: RetryPolicy) -> dict[str, Any]:
    """Return group settings for a consume; the group starts at the first message."""
    return {"start_from": "earliest", "retries": structs.asdict(retries)}


def publish(fleet: Fleet, topic: str, messages: Sequence[tuple[str | None, str]], *, server: int = 0) -> Places:
    """Publish in batches, and return the place of each message."""
    places: Places = {}
    for first in range(0, len(messages), 1000):
        chosen = messages[first : first + 1000]
        body = {"messages": [{"key": key, "value": value} for key, value in chosen]}
        answer = fleet.request("POST", f"/v1/topics/{topic}/messages", body, server=server)
        for message, result in zip(chosen, answer["results"], strict=True):
            places[result["partition"], result["offset"]] = message
    return places


class Crew:
    """Worker processes, each with its own history; a killed one is replaced under a new name."""

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
        """Kill the oldest worker and start another."""
        name, process = self.workers.pop(0)
        assert process.running, process.log_text()[-2000:]
        process.kill9()
        # A worker that was killed before its first line has no history.
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
    """Reads the progress of the group repeatedly, and records it."""

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
    """Return whether everything is finished."""
    return sum(part.finished for part in parts) == messages


def await_drained(sampler: Sampler, crew: Crew, messages: int, within: float) -> None:
    def done() -> bool:
        crew.check()
        return drained(sampler.last, messages)

    try:
        eventually(done, within=within, every=0.1)
    except AssertionError as error:
        raise AssertionError(f"not drained: {sampler.last}") from error


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The final state of a topic and a group on the servers; `tables` has it in rows."""

    progress: Sequence[ProgressSeen]
    dead: Sequence[DeadSeen]
    tables: Tables
    run: RunInfo


def truth_of(fleet: Fleet, folder: Path, topic: str, group: str, places: Places, rules: GroupRules) -> Truth:
    """Assert that the log has all published messages and no others; its progress ends the history."""
    asker = HttpOwner(HistoryRecorder(folder, f"truth-{time.monotonic_ns()}"), fleet.ports, topic, group)
    progress = asker.progress(final=True)
    dead = asker.dead_letters()
    asker.close()
    read = fleet.read_all(topic)
    seen = read["seen"]
    assert set(zip(seen.partition.tolist(), seen.offset.tolist(), strict=True)) == set(places)
    ids = {"topic": text_id(topic), "group": text_id(group)}
    letters = [
        {**ids, "partition": each.partition, "offset": each.offset, "key": text_id(each.key),
         "failures": each.failures, "deliveries": each.deliveries}
        for each in dead
    ]  # fmt: skip
    tables = Tables(by_name={**read.by_name, "dead": columns("dead", letters)})
    run = RunInfo(rules={(ids["topic"], ids["group"]): rules})
    return Truth(progress=progress, dead=dead, tables=tables, run=run)


def lease_history(folder: Path, truth: Truth, *, killed: Collection[str] = ()) -> History:
    """Return the records of all owners and the final state. `killed` owners never returned (L5), and may lack their
    end.
    """
    run = replace(truth.run, crashed=frozenset(map(text_id, killed)))
    return with_truth(load_files(folder, crashed=killed, run=run), truth.tables)


def with_truth(history: History, truth: Tables) -> History:
    names = history.tables.by_name.keys() | truth.by_name.keys()
    tables = {name: joined(name, [history.tables[name], truth[name]]) for name in names}
    return replace(history, tables=Tables(by_name=tables))


def in_hand(history: History) -> int:
    """Return the number of messages that owners held, without an answer, when they were killed."""
    parts = instances(CheckScope.LEASE, history.tables)
    return sum(len(l5.abandoned(leases_of(part, history.run))) for part in parts)


def told(history: History, outcome: CallOutcome) -> int:
    """Return the number of consumes, seeks and answers for a message with this outcome."""
    return sum(int((history.tables[name].outcome == outcome).sum()) for name in ("call", "answer"))


def assert_holds(history: History, names: Collection[str]) -> None:
    """Fail with the counter-examples to these invariants, or with the missing part of the history."""
    chosen = [each for each in INVARIANTS if each.name in names]
    assert_valid(judge_tables(history.tables, history.run, cut=history.cut, invariants=chosen))


def assert_log_valid(history: History) -> None:
    """Check S1 to S7."""
    assert_holds(history, LOG)


def assert_leases_valid(history: History) -> None:
    """Check S8 to S16, and L5 for owners that died."""
    assert_holds(history, LEASES)
