"""`scripts/prove soak`: an hour at half of the peak, five groups on one topic, tiering and retention on, no faults.

The peak is what the slowest group keeps up with when producers do not wait: more would only measure how a backlog
grows. Everything passes the laboratory's proxies, so that it is no benchmark.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from prove.commands import Command, in_folder, say, seeded, write_json
from prove.lab.cpu_stalls import Pulse
from prove.lab.sizes import Size
from prove.lab.topology import SERVERS, Scene
from prove.soak.gauges import MAX_WAL, Taken, finished, lags, take
from prove.soak.latency import measure
from prove.soak.page import Soaked, page
from prove.soak.verdicts import undisturbed, verdicts
from prove.soak.workload import LEASE_GROUPS, Soakers

EVERY_SECONDS, HOLD_SECONDS = 10.0, 0.5
MOST = 2.0
"""Times what was asked for, however much of the machine is taken away."""
PEAK_SECONDS, PEAK_WARM_SECONDS, PEAK_MOST_SECONDS = 60.0, 20.0, 240.0
UNTHROTTLED = 1e9
KEPT_SHARE = 0.1
LEAST_KEPT_SECONDS = 90.0
"""Of messages: a tenth of the run, so that whatever grows for longer than that shows."""
SETTINGS = {"max_wal_size": f"{MAX_WAL >> 20}MB"}


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What to run."""

    minutes: float
    seed: int
    folder: Path
    servers: int
    rate: float | None

    @property
    def keep_seconds(self) -> float:
        return max(LEAST_KEPT_SECONDS, 60 * self.minutes * KEPT_SHARE)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, after the peak was measured")
    parser.add_argument("--rate", type=float, help="messages a second, instead of half of the measured peak")
    parser.add_argument("--servers", type=int, default=SERVERS, help="fewer where the machine is small")
    parser.add_argument("--seed", type=int, help="repeats the choices of another run; else by chance")
    parser.add_argument("--dir", type=Path, help="where histories, logs and the report go; else a new folder")


def run(asked: Namespace) -> int:
    return in_folder("soak", asked.dir, lambda folder: _soaked(asked, folder))


def _soaked(asked: Namespace, folder: Path) -> int:
    soaked = play(
        Wish(minutes=asked.minutes, seed=seeded(asked.seed), folder=folder, servers=asked.servers, rate=asked.rate)
    )
    write_json(folder / "soak.json", soaked)
    (folder / "soak.html").write_text(page(soaked), encoding="utf-8")
    _show(soaked)
    say(f"{'valid' if soaked.holds else 'invalid'}; {folder / 'soak.html'}, {folder / 'soak.json'}")
    return 0 if soaked.holds else 1


def play(wish: Wish) -> Soaked:
    wish.folder.mkdir(parents=True, exist_ok=True)
    with Pulse() as pulse, Scene(wish.folder, postgres=SETTINGS, servers=wish.servers) as scene:
        staff = Soakers(scene, _size(), wish.seed, keep_seconds=wish.keep_seconds)
        scene.staff = staff
        staff.make_topics()
        staff.hire()
        peak = _peak(scene, staff, pulse) if wish.rate is None else None
        rate = wish.rate or max(1.0, (peak or 0.0) / 2)
        say(f"soaking at {rate:,.0f} messages a second for {wish.minutes:g} minutes; {wish.folder}")
        staff.publish("producer", rate)
        began_ns = time.monotonic_ns()
        taken = _watch(scene, pulse, began_ns, 60 * wish.minutes)
        scene.crew.dismiss("producer")
        scene.crew.dismiss(*(hand.role for hand in scene.crew.hands))
        broken = list(scene.crew.broken)
    latency = measure(wish.folder, (("producer",), tuple(LEASE_GROUPS)), began_ns, pulse.stretches)
    return Soaked(
        seed=wish.seed,
        minutes=wish.minutes,
        servers=wish.servers,
        peak=peak,
        rate=rate,
        keep_seconds=wish.keep_seconds,
        verdicts=[
            undisturbed(taken[-1].at - _away(pulse, began_ns, taken[-1].at), 60 * wish.minutes),
            *verdicts(taken, latency, rate),
        ],
        broken=broken,
        taken_away=[
            (max(0.0, (began - began_ns) / 1e9), min(taken[-1].at, (ended - began_ns) / 1e9))
            for began, ended in pulse.stretches
            if ended > began_ns and began < began_ns + taken[-1].at * 1e9
        ],
        speed=[(each.at, _speed(pulse, began_ns, each.at)) for each in taken],
        taken=taken,
        windows=latency.windows(taken[-1].at),
    )


def _away(pulse: Pulse, began_ns: int, at: float) -> float:
    """Seconds until that one in which there was no machine."""
    return pulse.seconds(began_ns, began_ns + int(at * 1e9))


def _speed(pulse: Pulse, began_ns: int, at: float) -> float:
    """Around that second; 0: not known."""
    middle, around = began_ns + int(at * 1e9), int(EVERY_SECONDS * 1e9)
    return pulse.speed(middle - around, middle + around) or 0.0


def _size() -> Size:
    return Size(
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


def _watch(scene: Scene, pulse: Pulse, began_ns: int, seconds: float) -> list[Taken]:
    """A look every 10 s, until the machine was there for that long, or a client broke.

    Half of the peak is more than half where there is less of the machine: while it is taken away producers hold, and
    the clock stands still, though not for ever.
    """
    taken: list[Taken] = []
    while not (taken and scene.crew.broken):
        scene.crew.board.brake(2 if pulse.is_taken else 0)
        at = (time.monotonic_ns() - began_ns) / 1e9
        if at >= EVERY_SECONDS * len(taken):
            taken.append(take(scene, at))
            away = _away(pulse, began_ns, at)
            _tell(taken, away)
            if at - away >= seconds or at >= MOST * seconds:
                break
        time.sleep(HOLD_SECONDS)
    return taken


def _peak(scene: Scene, staff: Soakers, pulse: Pulse) -> float:
    """Producers do as much as they can, held back only where a group falls behind. Seconds in which the machine was
    taken away do not count."""
    say(f"measuring the peak for {PEAK_SECONDS:g} s")
    staff.publish("peak", UNTHROTTLED)
    began = time.monotonic()
    counted, seconds = 0, 0.0
    before: tuple[float, int] | None = None
    while seconds < PEAK_SECONDS - PEAK_WARM_SECONDS and time.monotonic() < began + PEAK_MOST_SECONDS:
        scene.crew.board.brake(2 if max(lags(scene).values(), default=0) > _size().most_lag else 0)
        done, now = finished(scene), time.monotonic()
        if done is not None and now > began + PEAK_WARM_SECONDS:
            if before and not pulse.is_taken:
                counted, seconds = counted + done - before[1], seconds + now - before[0]
            before = now, done
        time.sleep(HOLD_SECONDS)
    scene.crew.dismiss("peak")
    scene.crew.board.brake(0)
    late = time.monotonic() + PEAK_MOST_SECONDS
    while max(lags(scene).values(), default=0) > 0 and time.monotonic() < late:
        time.sleep(HOLD_SECONDS)
    if not counted:
        raise SystemExit(f"no peak in {PEAK_MOST_SECONDS:g} s: is the machine taken away? Say --rate, or try later")
    say(f"peak: {counted / seconds:,.0f} messages a second")
    return counted / seconds


def _tell(taken: list[Taken], away: float) -> None:
    now = taken[-1]
    rate = (now.published - taken[-2].published) / (now.at - taken[-2].at) if len(taken) > 1 else 0.0
    say(
        f"{now.at:5.0f} s  {rate:>7,.0f} a second  memory {sum(now.memory.values()) >> 20:,} MiB  dead {now.dead:,}  "
        f"database {now.database >> 20:,} MiB  WAL {now.wal >> 20:,} MiB  store {now.store / 2**20:,.1f} MiB  "
        f"lag {max(now.lag.values(), default=0):,}" + (f"  machine taken away for {away:.0f} s" if away else "")
    )


def _show(soaked: Soaked) -> None:
    table = Table(title=f"soak: {'valid' if soaked.holds else 'invalid'}")
    for column in ("", "verdict", "measured", "asked for"):
        table.add_column(column, overflow="fold")
    for each in soaked.verdicts:
        table.add_row(each.name, "holds" if each.holds else "does not hold", each.measured, each.asked)
    Console().print(table)
    if soaked.taken_away:
        away = sum(ended - began for began, ended in soaked.taken_away)
        say(f"the machine was taken away for {away:.0f} s: producers held, and these waits are not in the percentiles")
    sixth = max(1, len(soaked.speed) // 6)
    first, last = (median(share for _, share in part) for part in (soaked.speed[:sixth], soaked.speed[-sixth:]))
    say(f"processors had {first:.0%} of their best speed in the first sixth, and {last:.0%} in the last")
    for broken in soaked.broken:
        say(f"! a client broke: {broken}")


COMMAND = Command(
    name="soak",
    about="An hour at half of the peak without faults: memory, dead tuples, disk and waits must stay bounded.",
    arguments=arguments,
    run=run,
)
