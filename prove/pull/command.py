"""`scripts/prove pull`: programs that pull in all ways, killed each second, on two servers that are killed too.

S1 to S17 and S19 are judged as in any other run. For cursor groups, it also judges that no message is lost, and that
messages are repeated only as the commit mode allows.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from prove.check_command import EXIT, overall, show
from prove.checker.judgement import CheckVerdict
from prove.commands import ProveCommand, in_folder, say, seeded, write_json
from prove.pull.plan import SIZES
from prove.pull.run import PullResult, PullRun
from tests.kit.postgres import Cluster


class PullFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `pull.json`."""

    verdict: str
    seed: int
    messages: int
    returned: int
    killed: dict[str, int]
    repeats: dict[str, dict[str, int]]
    seconds: dict[str, float]
    wrong: tuple[str, ...]


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--size", choices=list(SIZES), default="full", help="size of the run (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the random choices (default: random)")
    parser.add_argument("--dir", type=Path, help="folder for histories, logs and figures (default: a new one)")


def run(asked: Namespace) -> int:
    return in_folder("pull", asked.dir, lambda folder: _proved(asked, folder))


def _proved(asked: Namespace, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    seed = seeded(asked.seed)
    say(f"pull, size {asked.size}, seed {seed}; {folder}")
    with Cluster(settings={"max_connections": "300"}) as cluster:
        result = PullRun(cluster, folder, SIZES[asked.size], seed, say).run()
    show(result.judged, seconds=sum(result.seconds.values()))
    figures = figures_of(result, seed)
    write_json(folder / "pull.json", figures)
    for name, value in msgspec.structs.asdict(figures).items():
        say(f"  {name}: {value}")
    say(f"{figures.verdict}; repeat with: scripts/prove pull --size {asked.size} --seed {seed}")
    return 1 if figures.wrong else EXIT[overall(result.judged)]


def figures_of(result: PullResult, seed: int) -> PullFigures:
    """Return the figures of a run, with everything that is wrong."""
    wrong = [f"a program failed: {each}" for each in result.broken]
    wrong += [f"not drained: {each}" for each in result.undrained]
    wrong += [str(violation) for each in result.repeats for violation in each.violations]
    wrong += [str(violation) for each in result.judged.values() for violation in each.violations]
    verdict = overall(result.judged)
    return PullFigures(
        verdict=(CheckVerdict.INVALID if wrong else verdict).value,
        seed=seed,
        messages=result.messages,
        returned=result.returned,
        killed=dict(result.kills),
        repeats={
            each.group: {
                "returned": each.returned,
                "repeated": each.repeated,
                "most_at_once": each.most_at_once,
                "lost": each.lost,
            }
            for each in result.repeats
        },
        seconds=dict(result.seconds),
        wrong=tuple(wrong[:100]),
    )


COMMAND = ProveCommand(
    name="pull",
    about="Kill programs that pull messages each second, and both servers, and judge all groups.",
    arguments=arguments,
    run=run,
)
