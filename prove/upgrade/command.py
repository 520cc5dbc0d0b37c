"""`scripts/prove upgrade`: upgrades three servers from an older commit to this checkout under load, back, and again.

It is a run of the laboratory whose faults are the steps of the upgrade. The invariants are judged as in any other run.
Programs with the Python client of both versions run beside it. Nothing that they see may be an error, because their
client retries everything that an upgrade can cause.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

import msgspec

from prove.check_command import show
from prove.commands import ProveCommand, in_folder, say, seeded, write_json
from prove.lab.laboratory import Laboratory, RunRequest
from prove.lab.schedule import ScheduledFault
from prove.lab.sizes import RunSize
from prove.lab.topology import Topology
from prove.lab.verdict import conclude
from prove.upgrade.release import CommitMissing, Release, unpack
from prove.upgrade.runner import UpgradeRunner, UpgradeTopology

DEFAULT_FROM = "2539c3d"
"""The last commit before servers compared feature levels."""
STEPS = 13
RATE = 400.0


class UpgradeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `upgrade.json`."""

    verdict: str
    old: str
    seed: int
    steps: tuple[tuple[str, float], ...]
    """The text and the duration in seconds of each step."""
    messages: int
    library_published: int
    library_handled: int
    library_handled_again: int
    wrong: tuple[str, ...]


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="old", default=DEFAULT_FROM, help="commit or tag to upgrade from (default: %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes of load (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the random choices, to repeat a run (default: random)")
    parser.add_argument("--dir", type=Path, help="folder for histories, logs and figures (default: a new one)")


def run(asked: Namespace) -> int:
    return in_folder("upgrade", asked.dir, lambda folder: _upgraded(asked, folder))


def _upgraded(asked: Namespace, folder: Path) -> int:
    seed = seeded(asked.seed)
    try:
        old = unpack(asked.old, folder / "old")
    except CommitMissing as error:
        say(str(error))
        return 2
    repeat = f"scripts/prove upgrade --from {asked.old} --minutes {asked.minutes:g} --seed {seed}"
    say(f"upgrade from {old.name}, seed {seed}; {folder}")
    size = run_size(asked.minutes)
    runners: list[UpgradeRunner] = []

    def runner(topology: Topology, entries: list[ScheduledFault]) -> UpgradeRunner:
        assert isinstance(topology, UpgradeTopology) and not entries
        runners.append(UpgradeRunner(topology, old, 60 * asked.minutes / (STEPS + 2)))
        return runners[0]

    request = RunRequest(
        size=size, seed=seed, folder=folder, kinds=(), say=say,
        topology=partial(UpgradeTopology, old=old), runner=runner,
    )  # fmt: skip
    finished = Laboratory(request).run()
    concluded = conclude(finished, size, seed, repeat)
    show(concluded.judged, seconds=sum(finished.seconds.values()))
    figures = _figures(runners[0], old, seed, concluded.summary.verdict, finished.messages)
    write_json(folder / "upgrade.json", figures)
    _show(figures, concluded.summary.notes)
    say(f"{figures.verdict}; figures: {folder / 'upgrade.json'}; repeat with: {repeat}")
    return 1 if figures.wrong else concluded.status


def run_size(minutes: float) -> RunSize:
    """Return the size of the run. A replacement need not have an effect: a drained server answers every call."""
    seconds = 60 * minutes
    return RunSize(
        name="upgrade",
        messages=round(RATE * seconds / 4),
        faults=0,
        kinds=0,
        seeds=0,
        minutes=minutes,
        load_seconds=seconds,
        drivers=0,
        rate=RATE,
        batch=20,
    )


def _figures(runner: UpgradeRunner, old: Release, seed: int, verdict: str, messages: int) -> UpgradeFigures:
    library = runner.library
    assert library is not None
    wrong = (*runner.failed, *library.wrong)
    return UpgradeFigures(
        verdict="invalid" if wrong else verdict,
        old=old.name,
        seed=seed,
        steps=tuple((each.about, round(each.seconds, 2)) for each in runner.steps),
        messages=messages,
        library_published=library.published,
        library_handled=library.handled,
        library_handled_again=library.again,
        wrong=wrong[:100],
    )


def _show(figures: UpgradeFigures, notes: tuple[str, ...]) -> None:
    for about, seconds in figures.steps:
        say(f"  {about}: {seconds:.2f} s")
    say(f"  messages of the laboratory: {figures.messages:,}")
    say(
        f"  messages of the Python client: {figures.library_published:,} published, {figures.library_handled:,} handled"
    )
    for each in (*notes, *figures.wrong[:20]):
        say(f"! {each}")


COMMAND = ProveCommand(
    name="upgrade",
    about="Upgrade the servers of an older commit under load, one at a time, go back once, and upgrade again.",
    arguments=arguments,
    run=run,
)
