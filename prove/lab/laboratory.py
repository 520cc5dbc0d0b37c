"""One run from beginning to end: scene, load with faults, healing, drain, truth. What comes of it is a folder.

The folder is what `scripts/prove check` judges. This module says how far it is, and judges nothing.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prove.checker.invariant import Fault, Run
from prove.history.recorder import Recorder
from prove.history.run_file import save_run
from prove.history.tables import text_id
from prove.lab.cpu_stalls import Pulse
from prove.lab.fault_runner import Conductor, Happened
from prove.lab.faults import KINDS
from prove.lab.lag_probe import LagProbe
from prove.lab.schedule import Entry, drill_seconds, schedule
from prove.lab.shared_progress import Field
from prove.lab.sizes import Size
from prove.lab.topology import Scene
from prove.lab.truth import Truth, left
from prove.lab.workload import SHORT, Staff

MEMORY_LIMIT = 1 << 30
"""Resident bytes of a server: what it may hold for callers, 256 MiB, and itself, with room for its allocator."""
UNTOLD_SECONDS = 6.0
"""Longer than a server that was just killed explains."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What to run. `code` and `postgres` are for runs of code that is not this checkout's."""

    size: Size
    seed: int
    folder: Path
    kinds: Sequence[str] = tuple(KINDS)
    code: Path | None = None
    postgres: Mapping[str, str] = field(default_factory=dict)
    staff: Callable[[Scene, Size, int], Staff] = Staff
    entries: Sequence[Entry] = ()
    """The faults, where they are not to be drawn from the seed; servers are killed in the first `drill_seconds`."""
    drill_seconds: float = 0.0
    say: Callable[[str], None] = print


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a run left behind, besides its folder."""

    folder: Path
    faults: tuple[Happened, ...]
    failed: tuple[str, ...]
    """Faults that could not be made."""
    broken: tuple[str, ...]
    """Clients that ended as none should: the run proves nothing then."""
    roles: dict[str, list[str]]
    undrained: tuple[str, ...]
    messages: int
    seconds: Mapping[str, float]
    speed: float | None = None
    """Of the processors while there was load, as a share of the best they had."""
    speed_by_minute: tuple[float, ...] = ()


class Laboratory:
    """`Laboratory(wish).play()`."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._say = wish.say
        self._seconds: dict[str, float] = {}
        self._phase_began = time.monotonic()
        self._pulse = Pulse()
        self._told = time.monotonic()
        """When the groups' lags were known."""

    def play(self) -> Played:
        wish = self._wish
        wish.folder.mkdir(parents=True, exist_ok=True)
        with self._pulse, Scene(wish.folder, code=wish.code, postgres=wish.postgres) as scene:
            scene.staff = wish.staff(scene, wish.size, wish.seed)
            scene.staff.make_topics()
            self._ended("start")
            return self._played(scene)

    def _played(self, scene: Scene) -> Played:
        conductor = Conductor(scene, self._entries())
        run, undrained = self._phases(scene, conductor)
        truth = Truth(scene)
        truth.write()
        self._save(scene, conductor, run)
        self._ended("truth")
        return Played(
            folder=scene.folder,
            faults=tuple(conductor.happened),
            failed=tuple(conductor.failed),
            broken=tuple(scene.crew.broken),
            roles=_roles(scene),
            undrained=tuple(undrained),
            messages=truth.messages,
            seconds=self._seconds,
            speed=self._pulse.speed(*run.load_ns),
            speed_by_minute=tuple(self._pulse.speed_by_minute(*run.load_ns)),
        )

    def _entries(self) -> list[Entry]:
        wish, size = self._wish, self._wish.size
        if wish.entries:
            return [*wish.entries]
        return schedule(wish.seed, wish.kinds, faults=size.scheduled, seconds=size.load_seconds)

    # Phases -----------------------------------------------------------------------------------------------------------

    def _phases(self, scene: Scene, conductor: Conductor) -> tuple[Run, list[str]]:
        """Load, healing, drain: when each was, and what is left of the drain."""
        scene.staff.hire()
        began = time.monotonic_ns()
        self._load(scene, conductor)
        scene.crew.dismiss(*scene.staff.publishing)
        stopped = time.monotonic_ns()
        self._ended("load")
        scene.heal()
        healed = time.monotonic_ns()
        undrained = self._drain(scene)
        drained = time.monotonic_ns()
        self._ended("drain")
        scene.crew.dismiss(*(hand.role for hand in scene.crew.hands))
        return Run(load_ns=(began, stopped), healed_ns=healed, drained_ns=drained), undrained

    def _load(self, scene: Scene, conductor: Conductor) -> None:
        """Until the faults are over and there are enough messages, or it takes far too long."""
        faults = threading.Thread(target=conductor.run, name="conductor", daemon=True)
        began = said = looked = time.monotonic()
        try:
            with Recorder(scene.folder / "history", "lab") as recorder, LagProbe(scene):
                scene.recorded.append("lab")
                faults.start()
                while faults.is_alive() or not self._is_over(scene, time.monotonic() - began):
                    time.sleep(0.25)
                    if self._is_vain(scene, time.monotonic() - began):
                        break
                    if time.monotonic() >= looked + 2:
                        looked = time.monotonic()
                        self._brake(scene)
                    if time.monotonic() >= said + 5:
                        said = time.monotonic()
                        self._report(scene, conductor, said - began)
                        _sample_memory(scene, recorder)
        finally:
            conductor.cut()
            faults.join(120)

    def _is_over(self, scene: Scene, seconds: float) -> bool:
        size = self._wish.size
        # A repeat counts on the board, and is no further message.
        return seconds >= size.load_seconds and scene.crew.board.total(Field.PUBLISHED) >= 1.03 * size.messages

    def _is_vain(self, scene: Scene, seconds: float) -> bool:
        """Whether to give up, and why."""
        size = self._wish.size
        if scene.crew.broken:
            # Something is wrong with the laboratory, or refused what it must not refuse.
            self._say(scene.crew.broken[0])
            return True
        if seconds - self._pulse.seconds() > 1.2 * size.load_seconds + 180:
            self._say(f"too slow: {scene.crew.board.total(Field.PUBLISHED):,} messages of {size.messages:,}")
            return True
        return False

    def _brake(self, scene: Scene) -> None:
        """By the lag of the groups, past all proxies; servers that do not tell it for long have too much to do."""
        try:
            lags = [
                scene.request("GET", f"/v1/groups/{group}/lag", timeout=1.0, server=time.monotonic_ns() % 3)["lag"]
                for topic, group in scene.staff.all_groups
                if topic != SHORT
            ]
        except (OSError, RuntimeError, http.client.HTTPException):
            if time.monotonic() > self._told + UNTOLD_SECONDS:
                scene.crew.board.brake(2)
            return
        self._told = time.monotonic()
        scene.crew.board.brake(min(2, max(lags) // self._wish.size.most_lag))

    def _drain(self, scene: Scene) -> list[str]:
        began = time.monotonic_ns()
        while rest := left(scene):
            if time.monotonic_ns() > began + 1e9 * (self._wish.size.drain_seconds + self._pulse.seconds(began)):
                self._say(f"not drained: {'; '.join(rest[:5])}")
                return rest
            time.sleep(0.25)
        return []

    def _report(self, scene: Scene, conductor: Conductor, seconds: float) -> None:
        board = scene.crew.board
        published, delivered, acked = (board.total(each) for each in (Field.PUBLISHED, Field.DELIVERED, Field.ACKED))
        now = ", ".join(sorted(conductor.active)) or "quiet"
        self._say(
            f"{seconds:5.0f} s  {published:>9,} published  {delivered:>9,} delivered  {acked:>9,} acked  "
            f"{board.total(Field.UNKNOWN):>5,} unknown  {len(conductor.happened):>3} faults  now: {now}"
        )

    def _ended(self, phase: str) -> None:
        now = time.monotonic()
        self._seconds[phase] = now - self._phase_began
        self._phase_began = now
        self._say(f"{phase} took {self._seconds[phase]:.1f} s")

    def _save(self, scene: Scene, conductor: Conductor, run: Run) -> None:
        histories = {path.stem for path in (scene.folder / "history").glob("*.jsonl")}
        unmade = [replace(each, kind=f"not made: {each.kind}") for each in conductor.unmade]
        faults = tuple(
            Fault(kind=each.kind, began_ns=each.began_ns, ended_ns=each.ended_ns, about=each.about)
            for each in sorted([*conductor.happened, *unmade], key=lambda each: each.began_ns)
        )
        faults += tuple(self._pulse.faults)
        names = [*scene.staff.partitions, *(group for _, group in scene.staff.all_groups)]
        run = replace(
            run,
            names={text_id(name): name for name in [*names, *histories]},
            rules=scene.staff.rules,
            # One that was killed before its first line has no history.
            crashed=frozenset(text_id(name) for name in scene.crew.crashed if name in histories),
            faults=faults,
            targets={
                "L7": self._wish.size.rate,
                "L1": self._wish.size.drain_seconds + self._pulse.seconds(run.healed_ns),
                "drill_seconds": self._wish.drill_seconds
                or drill_seconds(self._wish.kinds, self._wish.size.load_seconds),
            },
        )
        save_run(scene.folder, run, processes=histories)
        (scene.folder / "roles.json").write_text(json.dumps(_roles(scene)))


def _sample_memory(scene: Scene, recorder: Recorder) -> None:
    for server in scene.servers:
        try:
            recorder.sample("memory", server.process.rss(), MEMORY_LIMIT)
        except Exception:
            # It is being killed or started at this moment.
            continue


def _roles(scene: Scene) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for hand in scene.crew.hands:
        found.setdefault(hand.role, []).append(hand.name)
    for name in scene.recorded:
        found.setdefault(name.partition("-")[0], []).append(name)
    return found
