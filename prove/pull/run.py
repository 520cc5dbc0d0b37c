"""A run: two servers, programs of all kinds that are killed and replaced, then the drain and the verdicts."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prove.checker.catalog import INVARIANTS
from prove.checker.invariant import FaultInterval, GroupRules, RunInfo
from prove.checker.judgement import Judgement, judge_tables
from prove.history.lease_lines import UNRESPONSIVE
from prove.history.loading import History, load_files
from prove.history.recorder import HistoryRecorder
from prove.history.tables import Tables, columns, joined, text_id
from prove.lab.client_processes import ClientProcesses
from prove.lab.load.calls import HttpCaller
from prove.lab.load.owner import LeaseOwner
from prove.lab.load.plan import ClientPlan, ProducerPlan, SamplerPlan
from prove.lab.shared_progress import ProgressField
from prove.pull.commit_modes import CommitRule, RepeatFigures, judge_repeats
from prove.pull.plan import LEASE_GROUP, LEASE_KINDS, MODULE, PARTITIONS, TOPIC, PullPlan, PullSize, group_of, mode_of
from prove.pull.program import RETRIES
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor

ROOT = Path(__file__).resolve().parents[2]
JUDGED = (*(f"S{number}" for number in range(1, 18)), "S19")
_TRUTH = "truth"


@dataclass(frozen=True, kw_only=True)
class PullResult:
    """The verdicts of a run, and its figures."""

    judged: Mapping[str, Judgement]
    repeats: list[RepeatFigures]
    messages: int
    returned: int
    kills: Mapping[str, int]
    """The number of killed programs, by kind."""
    broken: tuple[str, ...]
    undrained: tuple[str, ...]
    seconds: Mapping[str, float]


class PullRun:
    """One run in a folder: `PullRun(cluster, folder, size, seed).run()`."""

    def __init__(
        self, cluster: Cluster, folder: Path, size: PullSize, seed: int, say: Callable[[str], None] = print
    ) -> None:
        self._cluster, self._folder, self._size, self._say = cluster, folder, size, say
        self._seed = seed
        self._ports: list[int] = []
        self._chance = random.Random(seed)
        self._kills: dict[str, int] = {}
        self._faults: list[FaultInterval] = []
        self._seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def run(self) -> PullResult:
        with Fleet(self._cluster, authenticate=True) as fleet, Supervisor(self._folder) as supervisor:
            fleet.create_topic(TOPIC, PARTITIONS)
            self._ports = fleet.ports
            token = fleet.token or ""
            with ClientProcesses(supervisor, self._folder, fleet.ports, path=str(ROOT), token=token) as clients:
                self._start(clients)
                self._ended("start")
                self._load(fleet, clients)
                self._ended("load")
                undrained = self._drain(fleet, clients)
                self._ended("drain")
                clients.end_roles(*{client.role for client in clients.processes}, within=60.0)
                truth = self._read_truth(fleet)
            self._ended("truth")
        return self._judge(clients, truth, undrained)

    # Phases -----------------------------------------------------------------------------------------------------------

    def _start(self, clients: ClientProcesses) -> None:
        for kind, count in self._size.programs.items():
            clients.start_role(kind, MODULE, count, self._program(kind))
        clients.start_role("sampler", "sampler", 1, self._sampler)
        clients.start_role("producer", "producer", 1, self._producer)

    def _load(self, fleet: Fleet, clients: ClientProcesses) -> None:
        """Kill programs, and each server once, until all messages are published and enough programs were killed."""
        size, servers = self._size, list(enumerate(self._size.server_shares))
        killed = said = braked = time.monotonic()
        while True:
            published, now = clients.progress.total(ProgressField.PUBLISHED), time.monotonic()
            if clients.broken:
                return
            if published >= size.messages:
                clients.end_roles("producer")
                if sum(self._kills.values()) >= size.kills and not servers:
                    return
            if servers and published >= servers[0][1] * size.messages:
                self._kill_server(fleet, servers.pop(0)[0])
            if now >= killed + size.kill_seconds:
                killed = now
                self._kill_program(clients)
            if now >= braked + 2:
                braked = now
                clients.progress.throttle(min(2, self._lag(fleet) // size.most_lag))
            if now >= said + 10:
                said = now
                self._say(self._progress(clients, now - self._began))
            time.sleep(0.02)

    def _kill_program(self, clients: ClientProcesses) -> None:
        """Kill a random program that has got messages; it is replaced."""
        has_begun = [
            client
            for client in clients.of(*self._size.programs)
            if clients.progress.get(client.slot, ProgressField.DELIVERED)
        ]
        if not has_begun:
            return
        client = self._chance.choice(has_begun)
        clients.kill9(client)
        self._kills[client.role] = self._kills.get(client.role, 0) + 1

    def _kill_server(self, fleet: Fleet, number: int) -> None:
        began = time.monotonic_ns()
        fleet.servers[number].kill9()
        fleet.servers[number].restart()
        self._faults.append(
            FaultInterval(kind="server killed", began_ns=began, ended_ns=time.monotonic_ns(), about=f"server{number}")
        )
        self._say(f"killed server {number}")

    def _drain(self, fleet: Fleet, clients: ClientProcesses) -> tuple[str, ...]:
        until = time.monotonic() + self._size.drain_seconds
        while True:
            left = [text for group in self._groups for text in _left(fleet, group)]
            if not left or clients.broken or time.monotonic() > until:
                return tuple(left)
            time.sleep(0.2)

    @property
    def _groups(self) -> list[str]:
        return [*dict.fromkeys(group for kind in self._size.programs if (group := group_of(kind)))]

    def _lag(self, fleet: Fleet) -> int:
        try:
            return max(int(fleet.request("GET", f"/v1/groups/{group}/lag")["lag"]) for group in self._groups)
        except (OSError, AssertionError, http.client.HTTPException):
            # A group does not exist yet, or a server starts.
            return 0

    def _progress(self, clients: ClientProcesses, seconds: float) -> str:
        total = clients.progress.total
        return (
            f"{seconds:5.0f} s  {total(ProgressField.PUBLISHED):>9,} published  {total(ProgressField.DELIVERED):>9,} "
            f"returned  {total(ProgressField.REFUSED):>6,} errors  {sum(self._kills.values()):>4} killed"
        )

    def _ended(self, phase: str) -> None:
        now = time.monotonic()
        self._seconds[phase] = round(now - self._began - sum(self._seconds.values()), 1)
        self._say(f"{phase} took {self._seconds[phase]} s")

    # Plans ------------------------------------------------------------------------------------------------------------

    def _common(self, role: str, name: str, slot: int) -> dict[str, Any]:
        return {"name": name, "role": role, "slot": slot, "folder": str(self._folder), "seed": self._seed + slot}

    def _program(self, kind: str) -> Callable[[str, int, str], ClientPlan]:
        size = self._size

        def make(name: str, slot: int, after: str) -> ClientPlan:
            return PullPlan(
                kind=kind,
                lease=size.lease,
                session=size.session,
                interval=size.interval,
                work=size.work,
                ports=self._ports,
                **self._common(kind, name, slot),
            )

        return make

    def _producer(self, name: str, slot: int, after: str) -> ClientPlan:
        common = self._common("producer", name, slot)
        size = self._size
        return ProducerPlan(
            topic=TOPIC, rate=size.rate, batch=100, partitions=PARTITIONS, after=after, ports=self._ports, **common
        )

    def _sampler(self, name: str, slot: int, after: str) -> ClientPlan:
        groups = [(TOPIC, group) for group in self._groups]
        return SamplerPlan(groups=groups, ports=self._ports, **self._common("sampler", name, slot))

    # Verdicts ---------------------------------------------------------------------------------------------------------

    def _read_truth(self, fleet: Fleet) -> Tables:
        """Read the log, the progress of all groups and the dead letters from the servers."""
        caller = HttpCaller(fleet.ports, 30.0, token=fleet.token)
        with HistoryRecorder(self._folder / "history", _TRUTH) as recorder:
            for group in self._groups:
                LeaseOwner(recorder, caller, TOPIC, group, _TRUTH).progress(final=True)
        caller.close()
        return Tables(by_name={**fleet.read_all(TOPIC).by_name, "dead": columns("dead", _letters(fleet))})

    def _judge(self, clients: ClientProcesses, truth: Tables, undrained: tuple[str, ...]) -> PullResult:
        history = self._history(clients, truth)
        chosen = [each for each in INVARIANTS if each.name in JUDGED]
        judged = judge_tables(history.tables, history.run, cut=history.cut, invariants=chosen)
        rules = {
            group_of(kind): CommitRule(mode=mode_of(kind), interval_ns=round(self._size.interval * 1e9))
            for kind in self._size.programs
            if group_of(kind) and kind not in LEASE_KINDS
        }
        repeats = judge_repeats(history.tables, history.run, rules)
        self._ended("check")
        seen = history.tables["seen"]
        return PullResult(
            judged=judged,
            repeats=repeats,
            messages=len(truth["seen"]),
            returned=len(seen) - len(truth["seen"]),
            kills=self._kills,
            broken=tuple(clients.broken),
            undrained=undrained,
            seconds=self._seconds,
        )

    def _history(self, clients: ClientProcesses, truth: Tables) -> History:
        folder = self._folder / "history"
        # A program that was killed before its first line has no history.
        crashed = [name for name in clients.crashed if (folder / f"{name}.jsonl").exists()]
        rules = {(text_id(TOPIC), text_id(LEASE_GROUP)): GroupRules(retries=RETRIES)}
        run = RunInfo(rules=rules, crashed=frozenset(map(text_id, crashed)), faults=tuple(self._faults))
        history = load_files(folder, crashed=crashed, run=run)
        names = history.tables.by_name.keys() | truth.by_name.keys()
        tables = {name: joined(name, [history.tables[name], truth[name]]) for name in names}
        return replace(history, tables=Tables(by_name=tables))


def _left(fleet: Fleet, group: str) -> list[str]:
    """Return a text for each partition that a group has not finished."""
    return [
        f"{group}/{part['partition']}: {part['high_watermark'] - part['committed']} left, {part['leased']} leased"
        for part in fleet.request("GET", f"/v1/groups/{group}/lag")["partitions"]
        if part["committed"] < part["high_watermark"] or part["status"] == UNRESPONSIVE
    ]


def _letters(fleet: Fleet) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        path = f"/v1/groups/{LEASE_GROUP}/dead-letters?topic={TOPIC}&limit=1000{after}"
        page = fleet.request("GET", path)
        found += [
            {
                "topic": text_id(TOPIC),
                "group": text_id(LEASE_GROUP),
                "partition": each["partition"],
                "offset": int(each["id"].split("-")[2]),
                "key": text_id(each.get("key")),
                "failures": each["failures"],
                "deliveries": each["deliveries"],
            }
            for each in page["dead_letters"]
        ]
        if page.get("next") is None:
            return found
        after = f"&after={page['next']}"
