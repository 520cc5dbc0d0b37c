"""One complete run: topology, load with faults, healing, drain, truth. The result is a folder.

`scripts/prove check` judges the folder. This module reports progress, and judges nothing.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prove.checker.invariant import FaultInterval, RunInfo
from prove.history.recorder import HistoryRecorder
from prove.history.run_file import save_run
from prove.history.tables import text_id
from prove.lab.cpu_stalls import StallMonitor
from prove.lab.fault_runner import FaultRunner, InjectedFault
from prove.lab.faults import KINDS
from prove.lab.lag_probe import LagProbe
from prove.lab.schedule import ScheduledFault, drill_seconds, schedule
from prove.lab.shared_progress import ProgressField
from prove.lab.sizes import RunSize
from prove.lab.topology import Topology
from prove.lab.truth import LabTruth, left
from prove.lab.workload import SHORT, Workload

MEMORY_LIMIT = 1 << 30
"""Limit of a server's resident bytes: 256 MiB for callers, and the rest for the process and its allocator."""
UNTOLD_SECONDS = 6.0
"""The time without reported lags after which servers count as overloaded. It is longer than a restart takes."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The parameters of a run. `code` and `postgres` are for runs of code from another folder."""

    size: RunSize
    seed: int
    folder: Path
    kinds: Sequence[str] = tuple(KINDS)
    code: Path | None = None
    postgres: Mapping[str, str] = field(default_factory=dict)
    workload: Callable[[Topology, RunSize, int], Workload] = Workload
    entries: Sequence[ScheduledFault] = ()
    """The faults, if they are not drawn from the seed. Servers are killed in the first `drill_seconds`."""
    drill_seconds: float = 0.0
    topology: Callable[..., Topology] = Topology
    runner: Callable[[Topology, list[ScheduledFault]], FaultRunner] = FaultRunner
    say: Callable[[str], None] = print


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """The results of a run, besides its folder."""

    folder: Path
    faults: tuple[InjectedFault, ...]
    failed: tuple[str, ...]
    """Faults that could not be injected."""
    broken: tuple[str, ...]
    """Clients that failed. Such a run proves nothing."""
    roles: dict[str, list[str]]
    undrained: tuple[str, ...]
    messages: int
    seconds: Mapping[str, float]
    speed: float | None = None
    """The processor speed during the load, as a share of the best."""
    speed_by_minute: tuple[float, ...] = ()


class Laboratory:
    """Runs one request: `Laboratory(request).run()`."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._say = request.say
        self._seconds: dict[str, float] = {}
        self._phase_began = time.monotonic()
        self._stalls = StallMonitor()
        self._told = time.monotonic()
        """The time when the lags of the groups were last known."""

    def run(self) -> FinishedRun:
        request = self._request
        request.folder.mkdir(parents=True, exist_ok=True)
        options = {"code": request.code, "postgres": request.postgres} if request.topology is Topology else {}
        with self._stalls, request.topology(request.folder, **options) as topology:
            topology.workload = request.workload(topology, request.size, request.seed)
            topology.workload.make_topics()
            self._ended("start")
            return self._run_phases(topology)

    def _run_phases(self, topology: Topology) -> FinishedRun:
        runner = self._request.runner(topology, self._entries())
        run, undrained = self._phases(topology, runner)
        truth = LabTruth(topology)
        truth.write()
        self._save(topology, runner, run)
        self._ended("truth")
        return FinishedRun(
            folder=topology.folder,
            faults=tuple(runner.happened),
            failed=tuple(runner.failed),
            broken=tuple(topology.clients.broken),
            roles=_roles(topology),
            undrained=tuple(undrained),
            messages=truth.messages,
            seconds=self._seconds,
            speed=self._stalls.speed(*run.load_ns),
            speed_by_minute=tuple(self._stalls.speed_by_minute(*run.load_ns)),
        )

    def _entries(self) -> list[ScheduledFault]:
        request, size = self._request, self._request.size
        if request.entries or not request.kinds:
            return [*request.entries]
        return schedule(request.seed, request.kinds, faults=size.scheduled, seconds=size.load_seconds)

    # Phases -----------------------------------------------------------------------------------------------------------

    def _phases(self, topology: Topology, runner: FaultRunner) -> tuple[RunInfo, list[str]]:
        """Run load, healing and drain. Return their times, and the groups that were not drained."""
        topology.workload.start()
        began = time.monotonic_ns()
        self._load(topology, runner)
        topology.clients.end_roles(*topology.workload.publishing)
        stopped = time.monotonic_ns()
        self._ended("load")
        topology.heal()
        healed = time.monotonic_ns()
        undrained = self._drain(topology)
        drained = time.monotonic_ns()
        self._ended("drain")
        topology.clients.end_roles(*(client.role for client in topology.clients.processes))
        return RunInfo(load_ns=(began, stopped), healed_ns=healed, drained_ns=drained), undrained

    def _load(self, topology: Topology, runner: FaultRunner) -> None:
        """Run load until the faults have ended and there are enough messages, or until a time limit."""
        faults = threading.Thread(target=runner.run, name="runner", daemon=True)
        began = said = looked = time.monotonic()
        try:
            with HistoryRecorder(topology.folder / "history", "lab") as recorder, LagProbe(topology):
                topology.recorded.append("lab")
                faults.start()
                while faults.is_alive() or not self._is_over(topology, time.monotonic() - began):
                    time.sleep(0.25)
                    if self._is_vain(topology, time.monotonic() - began):
                        break
                    if time.monotonic() >= looked + 2:
                        looked = time.monotonic()
                        self._brake(topology)
                    if time.monotonic() >= said + 5:
                        said = time.monotonic()
                        self._report(topology, runner, said - began)
                        _sample_memory(topology, recorder)
        finally:
            runner.cut()
            faults.join(120)

    def _is_over(self, topology: Topology, seconds: float) -> bool:
        size = self._request.size
        # Shared progress also counts repeats, which are no further messages.
        return (
            seconds >= size.load_seconds
            and topology.clients.progress.total(ProgressField.PUBLISHED) >= 1.03 * size.messages
        )

    def _is_vain(self, topology: Topology, seconds: float) -> bool:
        """Return whether to give up, and report why."""
        size = self._request.size
        if topology.clients.broken:
            # The laboratory failed, or a server refused a valid call.
            self._say(topology.clients.broken[0])
            return True
        if seconds - self._stalls.seconds() > 1.2 * size.load_seconds + 180:
            self._say(
                f"too slow: {topology.clients.progress.total(ProgressField.PUBLISHED):,} messages of {size.messages:,}"
            )
            return True
        return False

    def _brake(self, topology: Topology) -> None:
        """Throttle producers by the lag of the groups, which is read without proxies.

        Servers that have not reported the lag for long are overloaded.
        """
        try:
            lags = [
                topology.request("GET", f"/v1/groups/{group}/lag", timeout=1.0, server=time.monotonic_ns() % 3)["lag"]
                for topic, group in topology.workload.all_groups
                if topic != SHORT
            ]
        except (OSError, RuntimeError, http.client.HTTPException):
            if time.monotonic() > self._told + UNTOLD_SECONDS:
                topology.clients.progress.throttle(2)
            return
        self._told = time.monotonic()
        topology.clients.progress.throttle(min(2, max(lags) // self._request.size.most_lag))

    def _drain(self, topology: Topology) -> list[str]:
        began = time.monotonic_ns()
        while rest := left(topology):
            if time.monotonic_ns() > began + 1e9 * (self._request.size.drain_seconds + self._stalls.seconds(began)):
                self._say(f"not drained: {'; '.join(rest[:5])}")
                return rest
            time.sleep(0.25)
        return []

    def _report(self, topology: Topology, runner: FaultRunner, seconds: float) -> None:
        progress = topology.clients.progress
        published, delivered, acked = (
            progress.total(each) for each in (ProgressField.PUBLISHED, ProgressField.DELIVERED, ProgressField.ACKED)
        )
        now = ", ".join(sorted(runner.active)) or "quiet"
        self._say(
            f"{seconds:5.0f} s  {published:>9,} published  {delivered:>9,} delivered  {acked:>9,} acked  "
            f"{progress.total(ProgressField.UNKNOWN):>5,} unknown  {len(runner.happened):>3} faults  now: {now}"
        )

    def _ended(self, phase: str) -> None:
        now = time.monotonic()
        self._seconds[phase] = now - self._phase_began
        self._phase_began = now
        self._say(f"{phase} took {self._seconds[phase]:.1f} s")

    def _save(self, topology: Topology, runner: FaultRunner, run: RunInfo) -> None:
        histories = {path.stem for path in (topology.folder / "history").glob("*.jsonl")}
        unmade = [replace(each, kind=f"not injected: {each.kind}") for each in runner.unmade]
        faults = tuple(
            FaultInterval(kind=each.kind, began_ns=each.began_ns, ended_ns=each.ended_ns, about=each.about)
            for each in sorted([*runner.happened, *unmade], key=lambda each: each.began_ns)
        )
        faults += tuple(self._stalls.faults)
        names = [*topology.workload.partitions, *(group for _, group in topology.workload.all_groups)]
        run = replace(
            run,
            names={text_id(name): name for name in [*names, *histories]},
            rules=topology.workload.rules,
            # A process that was killed before its first line has no history.
            crashed=frozenset(text_id(name) for name in topology.clients.crashed if name in histories),
            faults=faults,
            targets={
                "L7": self._request.size.rate,
                "L1": self._request.size.drain_seconds + self._stalls.seconds(run.healed_ns),
                "drill_seconds": self._request.drill_seconds
                or drill_seconds(self._request.kinds, self._request.size.load_seconds),
            },
        )
        save_run(topology.folder, run, processes=histories)
        (topology.folder / "roles.json").write_text(json.dumps(_roles(topology)))


def _sample_memory(topology: Topology, recorder: HistoryRecorder) -> None:
    for server in topology.servers:
        try:
            recorder.sample("memory", server.process.rss(), MEMORY_LIMIT)
        except Exception:
            # The server is being killed or started at this moment.
            continue


def _roles(topology: Topology) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for client in topology.clients.processes:
        found.setdefault(client.role, []).append(client.name)
    for name in topology.recorded:
        found.setdefault(name.partition("-")[0], []).append(name)
    return found
