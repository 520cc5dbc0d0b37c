"""`scripts/prove hostile`: a normal tenant alone and beside a hostile one, in turn, on real servers and PostgreSQL.

The p99 of the normal tenant beside the hostile one must be at most twice that of its time alone, health checks must
take less than 100 ms, and the servers' memory must stay within its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psutil
import uvloop

from lakelog.server.connections import raise_file_limit
from lakelog.storage.postgres import migrate
from prove.commands import ProveCommand, in_folder, say, write_json
from prove.hostile.normal import Latencies, NormalTenant
from prove.hostile.tenant import HostileFigures, HostilePlan, progress_file
from prove.lab.laboratory import MEMORY_LIMIT
from tests.kit.fleet import LAKELOG, new_token
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.waiting import eventually_async

MOST_TIMES = 2.0
"""The largest allowed p99 of the normal tenant, as a multiple of its p99 alone."""
MOST_HEALTH_SECONDS = 0.1
SERVERS = 2
SETTLE_SECONDS = 3.0
"""The time after the end of the hostile tenant in which servers forget it."""


@dataclass(frozen=True, kw_only=True)
class HostileSize:
    """The amount of each attack, and the times. `ramp_seconds` is the time in which the attacks begin."""

    rounds: int
    seconds: float
    ramp_seconds: float
    attacks: dict[str, int]


SIZES = {
    "ci": HostileSize(
        rounds=2,
        seconds=4.0,
        ramp_seconds=4.0,
        attacks={"polls": 500, "slow": 250, "unread": 10, "partitions": 1000, "filters": 1, "expansions": 1},
    ),
    "full": HostileSize(
        rounds=4,
        seconds=20.0,
        ramp_seconds=25.0,
        attacks={"polls": 10_000, "slow": 5_000, "unread": 40, "partitions": 20_000, "filters": 4, "expansions": 2},
    ),
}


class PhaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One phase. Times are in milliseconds."""

    beside: bool
    publish_p50: float
    publish_p99: float
    consume_p50: float
    consume_p99: float
    health_p99: float
    health_longest: float
    calls: int
    failed: int
    server_memory: int
    """The largest resident size of a server, in bytes."""
    server_cpu: float
    """Processors that the servers used together."""
    tenant_cpu: float = 0.0
    """Processors that the process of the hostile tenant used."""


class HostileReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `hostile.json`. The ratios compare medians of the phases."""

    size: str
    publish_ratio: float
    consume_ratio: float
    health_p99: float
    memory: int
    failed: int
    phases: list[PhaseFigures]
    hostile: list[HostileFigures]

    @property
    def problems(self) -> list[str]:
        """Return the requirements that do not hold."""
        found = []
        for name, ratio in (("publish", self.publish_ratio), ("consume", self.consume_ratio)):
            if ratio > MOST_TIMES:
                found.append(f"p99 of {name}: {ratio:.1f} times that of alone")
        if self.health_p99 > 1000 * MOST_HEALTH_SECONDS:
            found.append(f"health checks: {self.health_p99:.0f} ms")
        if self.memory > MEMORY_LIMIT:
            found.append(f"memory: {self.memory >> 20} MiB")
        if self.failed:
            found.append(f"{self.failed} calls of the normal tenant failed")
        return found


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--size", choices=sorted(SIZES), default="ci", help="size of the attacks (default: ci)")
    parser.add_argument("--rounds", type=int, help="number of rounds of alone and beside")
    parser.add_argument("--only", choices=sorted(SIZES["ci"].attacks), action="append", help="run only these attacks")
    parser.add_argument("--dir", type=Path, help="folder for logs and figures (default: a new one)")


def run(asked: Namespace) -> int:
    return in_folder("hostile", asked.dir, lambda folder: _proved(asked, folder))


def _proved(asked: Namespace, folder: Path) -> int:
    size = SIZES[asked.size]
    if asked.only:
        size = replace(size, attacks={name: size.attacks[name] for name in asked.only})
    raise_file_limit()
    folder.mkdir(parents=True, exist_ok=True)
    with Cluster() as cluster, Supervisor(folder) as supervisor:
        stage = _Stage(cluster, supervisor, folder)
        report = uvloop.run(_rounds(stage, size, asked.rounds or size.rounds, asked.size))
    write_json(folder / "hostile.json", report)
    for problem in report.problems:
        say(f"! {problem}")
    say(f"{'invalid' if report.problems else 'valid'}; figures: {folder / 'hostile.json'}")
    return 1 if report.problems else 0


class _Stage:
    """Servers on one PostgreSQL, with a token for each tenant."""

    def __init__(self, cluster: Cluster, supervisor: Supervisor, folder: Path) -> None:
        url = cluster.create_database()
        asyncio.run(migrate(url))
        self.normal_token = asyncio.run(new_token(url, "normal"))
        self.hostile_token = asyncio.run(new_token(url, "hostile"))
        self.ports = [free_port() for _ in range(SERVERS)]
        self.folder = folder
        self.supervisor = supervisor
        self.servers: list[Process] = []
        for port in self.ports:
            argv = [LAKELOG, "serve", "--port", str(port), "--database-url", url]
            self.servers.append(supervisor.start(argv, ready=f"http://127.0.0.1:{port}/readyz", name="server"))

    def start_tenant(self, number: int, attacks: dict[str, int]) -> tuple[Process, Path]:
        """Start the hostile tenant. Return its process, and the file that it writes at its end."""
        path = self.folder / f"tenant-{number}.json"
        plan = HostilePlan(
            token=self.hostile_token,
            ports=self.ports,
            figures=str(path),
            addresses=("127.0.0.2", "127.0.0.3", "127.0.0.4"),
            seed=number,
            **attacks,
        )
        argv = [sys.executable, "-m", "prove.hostile.tenant", msgspec.json.encode(plan).decode()]
        return self.supervisor.start(argv, name="tenant"), path

    def server_cpu(self) -> float:
        times = [psutil.Process(server.pid).cpu_times() for server in self.servers]
        return sum(each.user + each.system for each in times)

    def server_memory(self) -> int:
        return max(psutil.Process(server.pid).memory_info().rss for server in self.servers)


async def _rounds(stage: _Stage, size: HostileSize, rounds: int, name: str) -> HostileReport:
    normal = NormalTenant(stage.normal_token, stage.ports, publishers=8, consumers=4)
    await normal.make_topic()
    await normal.run(2.0)
    phases: list[PhaseFigures] = []
    tenants: list[HostileFigures] = []
    for number in range(rounds):
        phases.append(await _phase(stage, normal, size.seconds))
        _show(phases[-1])
        process, path = stage.start_tenant(number, size.attacks)
        await eventually_async(progress_file(str(path)).exists, within=60)
        await asyncio.sleep(size.ramp_seconds)
        phases.append(await _phase(stage, normal, size.seconds, process))
        _show(phases[-1])
        await asyncio.to_thread(process.terminate, within=180)
        tenants.append(msgspec.json.decode(path.read_bytes(), type=HostileFigures))
        say(f"       hostile tenant: {msgspec.json.encode(tenants[-1]).decode()}")
        await asyncio.sleep(SETTLE_SECONDS)
    return _report(name, phases, tenants)


async def _phase(stage: _Stage, normal: NormalTenant, seconds: float, tenant: Process | None = None) -> PhaseFigures:
    began, cpu, other = time.monotonic(), stage.server_cpu(), _cpu(tenant)
    memory = [stage.server_memory()]

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.5)
            memory.append(stage.server_memory())

    watching = asyncio.create_task(watch())
    try:
        await normal.run(seconds)
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    took = time.monotonic() - began
    made = (normal.publish, normal.consume, normal.health)
    return PhaseFigures(
        beside=tenant is not None,
        publish_p50=_ms(normal.publish, 0.5),
        publish_p99=_ms(normal.publish, 0.99),
        consume_p50=_ms(normal.consume, 0.5),
        consume_p99=_ms(normal.consume, 0.99),
        health_p99=_ms(normal.health, 0.99),
        health_longest=round(1000 * normal.health.longest, 1),
        calls=sum(len(each.seconds) for each in made),
        failed=sum(each.failed for each in made),
        server_memory=max(memory),
        server_cpu=round((stage.server_cpu() - cpu) / took, 2),
        tenant_cpu=round((_cpu(tenant) - other) / took, 2),
    )


def _ms(latencies: Latencies, share: float) -> float:
    return round(1000 * latencies.percentile(share), 1)


def _cpu(process: Process | None) -> float:
    if process is None:
        return 0.0
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _report(name: str, phases: Sequence[PhaseFigures], tenants: list[HostileFigures]) -> HostileReport:
    def ratio(field: str) -> float:
        alone, beside = (
            median(getattr(each, field) for each in phases if each.beside is which) for which in (False, True)
        )
        return round(float(beside / alone), 2)

    attacked = [each for each in phases if each.beside]
    return HostileReport(
        size=name,
        publish_ratio=ratio("publish_p99"),
        consume_ratio=ratio("consume_p99"),
        health_p99=median(each.health_p99 for each in attacked),
        memory=max(each.server_memory for each in phases),
        failed=sum(each.failed for each in attacked),
        phases=list(phases),
        hostile=tenants,
    )


def _show(phase: PhaseFigures) -> None:
    values: dict[str, Any] = msgspec.structs.asdict(phase)
    values["server_memory"] = f"{phase.server_memory >> 20} MiB"
    name = "beside" if values.pop("beside") else "alone "
    say(f"{name} " + ", ".join(f"{key} {value}" for key, value in values.items()))


COMMAND = ProveCommand(
    name="hostile",
    about="Run a normal tenant alone and beside a hostile one, and compare its latencies.",
    arguments=arguments,
    run=run,
)
