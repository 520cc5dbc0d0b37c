"""`scripts/prove soak`: runs for an hour at half of the peak without faults, with five groups, tiering and retention.

The peak is the rate of the slowest group while producers run at full speed: a higher rate would only measure how a
backlog grows. All traffic passes the laboratory's proxies, so this is not a benchmark.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from prove.commands import ProveCommand, in_folder, say, seeded, write_json
from prove.lab.cpu_stalls import StallMonitor
from prove.lab.sizes import RunSize
from prove.lab.topology import SERVERS, Topology
from prove.soak.gauges import MAX_WAL, GaugeReading, finished, lags, take
from prove.soak.latency import measure
from prove.soak.page import Soaked, page
from prove.soak.verdicts import undisturbed, verdicts
from prove.soak.workload import LEASE_GROUPS, SoakWorkload

EVERY_SECONDS, HOLD_SECONDS = 10.0, 0.5
MOST = 2.0
"""The longest duration of a soak that stalls, as a multiple of the requested duration."""
PEAK_SECONDS, PEAK_WARM_SECONDS, PEAK_MOST_SECONDS = 60.0, 20.0, 240.0
UNTHROTTLED = 1e9
KEPT_SHARE = 0.1
LEAST_KEPT_SECONDS = 90.0
"""The shortest retention of messages. Otherwise it is a tenth of the run, so that longer growth shows."""
SETTINGS = {"max_wal_size": f"{MAX_WAL >> 20}MB"}


@dataclass(frozen=True, kw_only=True)
class SoakRequest:
    """The parameters of a soak."""

    minutes: float
    seed: int
    folder: Path
    servers: int
    rate: float | None

    @property
    def keep_seconds(self) -> float:
        return max(LEAST_KEPT_SECONDS, 60 * self.minutes * KEPT_SHARE)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60.0, help="duration after the peak is measured")
    parser.add_argument("--rate", type=float, help="messages per second (default: half of the measured peak)")
    parser.add_argument("--servers", type=int, default=SERVERS, help="number of servers; use fewer on a small machine")
    parser.add_argument("--seed", type=int, help="seed of the random choices, to repeat a run (default: random)")
    parser.add_argument("--dir", type=Path, help="folder for histories, logs and the report (default: a new one)")


def run(asked: Namespace) -> int:
    return in_folder("soak", asked.dir, lambda folder: _soaked(asked, folder))


def _soaked(asked: Namespace, folder: Path) -> int:
    soaked = soak(
        SoakRequest(
            minutes=asked.minutes, seed=seeded(asked.seed), folder=folder, servers=asked.servers, rate=asked.rate
        )
    )
    write_json(folder / "soak.json", soaked)
    (folder / "soak.html").write_text(page(soaked), encoding="utf-8")
    _show(soaked)
    say(f"{'valid' if soaked.holds else 'invalid'}; {folder / 'soak.html'}, {folder / 'soak.json'}")
    return 0 if soaked.holds else 1


def soak(request: SoakRequest) -> Soaked:
    request.folder.mkdir(parents=True, exist_ok=True)
    with StallMonitor() as stalls, Topology(request.folder, postgres=SETTINGS, servers=request.servers) as topology:
        workload = SoakWorkload(topology, _size(), request.seed, keep_seconds=request.keep_seconds)
        topology.workload = workload
        workload.make_topics()
        workload.start()
        peak = _peak(topology, workload, stalls) if request.rate is None else None
        rate = request.rate or max(1.0, (peak or 0.0) / 2)
        say(f"soaking at {rate:,.0f} messages per second for {request.minutes:g} minutes; {request.folder}")
        workload.publish("producer", rate)
        began_ns = time.monotonic_ns()
        taken = _watch(topology, stalls, began_ns, 60 * request.minutes)
        topology.clients.end_roles("producer")
        topology.clients.end_roles(*(client.role for client in topology.clients.processes))
        broken = list(topology.clients.broken)
    latency = measure(request.folder, (("producer",), tuple(LEASE_GROUPS)), began_ns, stalls.intervals)
    return Soaked(
        seed=request.seed,
        minutes=request.minutes,
        servers=request.servers,
        peak=peak,
        rate=rate,
        keep_seconds=request.keep_seconds,
        verdicts=[
            undisturbed(taken[-1].at - _away(stalls, began_ns, taken[-1].at), 60 * request.minutes),
            *verdicts(taken, latency, rate),
        ],
        broken=broken,
        taken_away=[
            (max(0.0, (began - began_ns) / 1e9), min(taken[-1].at, (ended - began_ns) / 1e9))
            for began, ended in stalls.intervals
            if ended > began_ns and began < began_ns + taken[-1].at * 1e9
        ],
        speed=[(each.at, _speed(stalls, began_ns, each.at)) for each in taken],
        taken=taken,
        windows=latency.windows(taken[-1].at),
    )


def _away(stalls: StallMonitor, began_ns: int, at: float) -> float:
    """Return how many seconds the machine had stalled up to that time."""
    return stalls.seconds(began_ns, began_ns + int(at * 1e9))


def _speed(stalls: StallMonitor, began_ns: int, at: float) -> float:
    """Return the processor speed around that second; 0 if unknown."""
    middle, around = began_ns + int(at * 1e9), int(EVERY_SECONDS * 1e9)
    return stalls.speed(middle - around, middle + around) or 0.0


def _size() -> RunSize:
    return RunSize(
        name="soak",
        messages=0,
        faults=0,
        kinds=0,
        seeds=0,
        minutes=0,
        load_seconds=0,
        rate=0,
        workers=2,
        members=2,
        batch=50,
        max_messages=200,
    )


def _watch(topology: Topology, stalls: StallMonitor, began_ns: int, seconds: float) -> list[GaugeReading]:
    """Take a reading every 10 s until the machine ran without stalls for that time, or a client failed.

    When the machine stalls, half of the peak is too much. Producers then pause and the clock stops, up to a limit.
    """
    taken: list[GaugeReading] = []
    while not (taken and topology.clients.broken):
        topology.clients.progress.throttle(2 if stalls.is_taken else 0)
        at = (time.monotonic_ns() - began_ns) / 1e9
        if at >= EVERY_SECONDS * len(taken):
            taken.append(take(topology, at))
            away = _away(stalls, began_ns, at)
            _print_reading(taken, away)
            if at - away >= seconds or at >= MOST * seconds:
                break
        time.sleep(HOLD_SECONDS)
    return taken


def _peak(topology: Topology, workload: SoakWorkload, stalls: StallMonitor) -> float:
    """Measure the peak: producers publish as fast as they can, throttled only if a group falls behind.

    Seconds in which the machine stalled do not count.
    """
    say(f"measuring the peak for {PEAK_SECONDS:g} s")
    workload.publish("peak", UNTHROTTLED)
    began = time.monotonic()
    counted, seconds = 0, 0.0
    before: tuple[float, int] | None = None
    while seconds < PEAK_SECONDS - PEAK_WARM_SECONDS and time.monotonic() < began + PEAK_MOST_SECONDS:
        topology.clients.progress.throttle(2 if max(lags(topology).values(), default=0) > _size().most_lag else 0)
        done, now = finished(topology), time.monotonic()
        if done is not None and now > began + PEAK_WARM_SECONDS:
            if before and not stalls.is_taken:
                counted, seconds = counted + done - before[1], seconds + now - before[0]
            before = now, done
        time.sleep(HOLD_SECONDS)
    topology.clients.end_roles("peak")
    topology.clients.progress.throttle(0)
    late = time.monotonic() + PEAK_MOST_SECONDS
    while max(lags(topology).values(), default=0) > 0 and time.monotonic() < late:
        time.sleep(HOLD_SECONDS)
    if not counted:
        raise SystemExit(f"no peak in {PEAK_MOST_SECONDS:g} s: the machine may be stalled. Pass --rate, or retry later")
    say(f"peak: {counted / seconds:,.0f} messages per second")
    return counted / seconds


def _print_reading(taken: list[GaugeReading], away: float) -> None:
    now = taken[-1]
    rate = (now.published - taken[-2].published) / (now.at - taken[-2].at) if len(taken) > 1 else 0.0
    say(
        f"{now.at:5.0f} s  {rate:>7,.0f} a second  memory {sum(now.memory.values()) >> 20:,} MiB  dead {now.dead:,}  "
        f"database {now.database >> 20:,} MiB  WAL {now.wal >> 20:,} MiB  store {now.store / 2**20:,.1f} MiB  "
        f"lag {max(now.lag.values(), default=0):,}" + (f"  machine stalled for {away:.0f} s" if away else "")
    )


def _show(soaked: Soaked) -> None:
    table = Table(title=f"soak: {'valid' if soaked.holds else 'invalid'}")
    for column in ("", "verdict", "measured", "required"):
        table.add_column(column, overflow="fold")
    for each in soaked.verdicts:
        table.add_row(each.name, "holds" if each.holds else "does not hold", each.measured, each.asked)
    Console().print(table)
    if soaked.taken_away:
        away = sum(ended - began for began, ended in soaked.taken_away)
        say(f"the machine stalled for {away:.0f} s: producers paused, and these waits are not in the percentiles")
    sixth = max(1, len(soaked.speed) // 6)
    first, last = (median(share for _, share in part) for part in (soaked.speed[:sixth], soaked.speed[-sixth:]))
    say(f"processors ran at {first:.0%} of their best speed in the first sixth, and at {last:.0%} in the last")
    for broken in soaked.broken:
        say(f"! a client failed: {broken}")


COMMAND = ProveCommand(
    name="soak",
    about="Run an hour at half of the peak without faults. Memory, dead tuples, disk and latency must stay bounded.",
    arguments=arguments,
    run=run,
)
