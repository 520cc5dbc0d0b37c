"""`scripts/prove drill`: kills one of three servers every 10 s, then PostgreSQL a few times, under a steady load.

It is a run of the laboratory with its own schedule, judged like any other. It adds two figures: the share of publishes
that succeed within 5 s of their first attempt (L3), and the time after each return of PostgreSQL until every partition
was published to and consumed from (L4).
"""

from __future__ import annotations

import random
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from prove.check_command import EXIT, overall, show
from prove.checker import l3_publish_success as l3
from prove.checker import l4_postgres_recovery as l4
from prove.checker.invariant import FaultInterval, RunInfo
from prove.checker.judgement import CheckVerdict, Judgement, judge_tables
from prove.checker.row_matching import Array
from prove.checker.timing import MS, SECOND
from prove.commands import ProveCommand, in_folder, say, seeded, write_json
from prove.history.file_reader import FileReader
from prove.history.loading import open_run
from prove.history.tables import CallOutcome, SampleKind, TableColumns, Tables, columns, joined, text_id
from prove.lab.laboratory import Laboratory, RunRequest
from prove.lab.schedule import DRILL, ScheduledFault
from prove.lab.sizes import RunSize
from prove.lab.topology import Topology
from prove.lab.verdict import L3_SHARE, conclude, first_tried
from prove.lab.workload import CURSOR_GROUP, ORDERS, Workload

EVERY_SECONDS = 10.0
RESTART = "postgres killed"
APART_SECONDS = 25.0
"""The time between restarts of PostgreSQL, long enough to observe calls that exceed the limit of L4."""
RATE = 600.0


class PostgresReturn(msgspec.Struct, frozen=True, kw_only=True):
    """One return of PostgreSQL: the seconds until every partition was published to and consumed from; -1 if never."""

    cell: str
    down: float
    published: float
    consumed: float


class DrillFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `drill.json`."""

    verdict: str
    seed: int
    minutes: float
    kills: int
    publishes: int
    share: float
    """Share of publishes that succeeded within 5 s of the first attempt."""
    never: int
    p99_seconds: float
    """99th percentile of the successful publishes, from the first attempt."""
    longest_seconds: float
    returns: tuple[PostgresReturn, ...]


class DrillWorkload(Workload):
    """The workload of the drill: producers, two lease groups and a cursor group on one topic."""

    def __init__(self, topology: Topology, size: RunSize, seed: int) -> None:
        super().__init__(topology, size, seed)
        self.groups = tuple(group for group in self.groups if group.topic == ORDERS)
        self.partitions = {ORDERS: size.partitions}

    def start(self) -> None:
        size, clients = self._size, self._topology.clients
        half = max(1, size.producers // 2)
        for role in ("producer", "numbered"):
            make = self._producer(role, ORDERS, size.rate / 2 / half, numbered=role == "numbered", bad=0.0)
            clients.start_role(role, "producer", half, make)
        for group in self.groups:
            clients.start_role(group.name, "worker", group.workers, self._worker(group))
        clients.start_role(CURSOR_GROUP, "member", size.members, self._member(CURSOR_GROUP))


def entries(seed: int, *, minutes: float, restarts: int) -> list[ScheduledFault]:
    """Return the schedule: random servers, then the cells in turn."""
    chance = random.Random(seed)
    kills = int(60 * minutes / EVERY_SECONDS)
    found = [
        ScheduledFault(at=2.0 + EVERY_SECONDS * number, kind=DRILL, seed=chance.randrange(1 << 30))
        for number in range(kills)
    ]
    begin = 60 * minutes + 2 * EVERY_SECONDS
    return found + [
        ScheduledFault(
            at=begin + APART_SECONDS * number,
            kind=RESTART,
            seed=chance.randrange(1 << 30),
            target=f"cell{number % 2}",
        )
        for number in range(restarts)
    ]


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes in which servers are killed")
    parser.add_argument("--restarts", type=int, default=5, help="number of kills and restarts of PostgreSQL after that")
    parser.add_argument("--seed", type=int, help="seed of the random choices, to repeat a run (default: random)")
    parser.add_argument("--dir", type=Path, help="folder for histories, logs and figures (default: a new one)")


def run(asked: Namespace) -> int:
    return in_folder("drill", asked.dir, lambda folder: _drilled(asked, folder))


def _drilled(asked: Namespace, folder: Path) -> int:
    seed = seeded(asked.seed)
    planned = entries(seed, minutes=asked.minutes, restarts=asked.restarts)
    size = _size(planned)
    repeat = f"scripts/prove drill --minutes {asked.minutes:g} --restarts {asked.restarts} --seed {seed}"
    say(f"drill, seed {seed}: {len(planned)} faults in {size.load_seconds:.0f} s; {folder}")
    request = RunRequest(
        size=size,
        seed=seed,
        folder=folder,
        workload=DrillWorkload,
        entries=planned,
        drill_seconds=60 * asked.minutes,
        say=say,
    )
    finished = Laboratory(request).run()
    concluded = conclude(finished, size, seed, repeat)
    tables, known = _tables(folder)
    returns = returned(tables, known)
    judged = {**concluded.judged, **judge_returns(returns, known)}
    verdict = overall(judged)
    if verdict is CheckVerdict.VALID and concluded.status == 2:
        verdict = CheckVerdict.UNKNOWN
    figures = _figures(tables, known, returns, (verdict, seed, asked.minutes))
    write_json(folder / "drill.json", figures)
    show(judged, seconds=sum(finished.seconds.values()))
    for note in concluded.summary.notes:
        say(f"! {note}")
    _show(figures)
    say(f"{verdict.value}; figures: {folder / 'drill.json'}; report: {folder / 'report.html'}; repeat with: {repeat}")
    return EXIT[verdict]


def _size(planned: Sequence[ScheduledFault]) -> RunSize:
    """Return the size of the run. Most faults must have an effect; an idle server may be killed without one."""
    seconds = planned[-1].at + APART_SECONDS
    return RunSize(
        name="drill",
        messages=round(RATE * seconds / 4),
        faults=len(planned) * 3 // 4,
        kinds=1,
        seeds=0,
        minutes=seconds / 60,
        load_seconds=seconds,
        drivers=0,
        rate=RATE,
        batch=20,
    )


# Measurements ---------------------------------------------------------------------------------------------------------


def returned(tables: Tables, run: RunInfo) -> list[PostgresReturn]:
    """Return the recovery after each restart. A call counts if it began after PostgreSQL returned."""
    return [_returned(tables, fault) for fault in run.faults if fault.kind == RESTART]


def _returned(tables: Tables, fault: FaultInterval) -> PostgresReturn:
    partitions = np.unique(tables["attempt"].partition[tables["attempt"].outcome == CallOutcome.OK])
    published, consumed = (_wait(tables[name], partitions, fault.ended_ns) for name in ("attempt", "delivery"))
    down = (fault.ended_ns - fault.began_ns) / SECOND
    return PostgresReturn(cell=fault.about, down=down, published=published, consumed=consumed)


def _wait(rows: TableColumns, partitions: Array, since_ns: int) -> float:
    """Return the seconds until every partition had a successful call; -1 if one had none."""
    mine = rows.where((rows.outcome == CallOutcome.OK) & (rows.invoked_ns >= since_ns))
    served = [mine.completed_ns[mine.partition == each] for each in partitions]
    if not served or not all(len(each) for each in served):
        return -1.0
    return float(max(each.min() for each in served) - since_ns) / SECOND


def judge_returns(returns: Sequence[PostgresReturn], run: RunInfo) -> dict[str, Judgement]:
    """Judge L4 for publishes and consumes."""
    at = [fault.ended_ns for fault in run.faults if fault.kind == RESTART]
    rows = [
        {"kind": int(SampleKind.SERVING), "at_ns": ended, "told": round(wait * SECOND) // MS}
        for ended, each in zip(at, returns, strict=True)
        for wait in (each.published, each.consumed)
    ]
    return judge_tables(Tables(by_name={"sample": columns("sample", rows)}), run, invariants=[l4.INVARIANT])


def _tables(folder: Path) -> tuple[Tables, RunInfo]:
    """Return the publishes and deliveries of the topic. A drill is small enough to load them."""
    source = open_run(folder)
    found: dict[str, list[TableColumns]] = {"attempt": [], "delivery": []}
    for path in source.files:
        for rows in FileReader(path, crashed=path.stem in source.crashed).chunks():
            if rows.name in found:
                found[rows.name].append(rows.where(rows.topic == text_id(ORDERS)))
    return Tables(by_name={name: joined(name, parts) for name, parts in found.items()}), source.run


def _figures(
    tables: Tables, run: RunInfo, returns: Sequence[PostgresReturn], about: tuple[CheckVerdict, int, float]
) -> DrillFigures:
    verdict, seed, minutes = about
    tried = Tables(by_name={"attempt": first_tried(tables["attempt"], run.load_ns[0], 60 * minutes)})
    took = l3.took(tried, run)
    ok = took[took < l3.NEVER] / SECOND
    return DrillFigures(
        verdict=verdict.value,
        seed=seed,
        minutes=minutes,
        kills=sum(fault.kind == DRILL for fault in run.faults),
        publishes=len(took),
        share=l3.figure(tried, run) or 0.0,
        never=len(took) - len(ok),
        p99_seconds=float(np.quantile(ok, 0.99)) if len(ok) else -1.0,
        longest_seconds=float(ok.max(initial=-1.0)),
        returns=tuple(returns),
    )


def _show(figures: DrillFigures) -> None:
    table = Table(title=f"drill: {figures.verdict}")
    for column in ("figure", "measured", "asked for"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    table.add_row("servers killed", f"{figures.kills}", "")
    table.add_row("messages published during the drill", f"{figures.publishes:,}", "")
    table.add_row(
        "succeeded within 5 s of the first attempt (L3)", f"{100 * figures.share:.4f} %", f">= {100 * L3_SHARE:g} %"
    )
    table.add_row("never ok", f"{figures.never:,}", "")
    table.add_row("99 % succeeded within", f"{figures.p99_seconds:.3f} s", "")
    table.add_row("the longest took", f"{figures.longest_seconds:.3f} s", "")
    for each in figures.returns:
        name = f"{each.cell} was down {each.down:.1f} s"
        limit = f"<= {l4.LIMIT_SECONDS:g} s"
        table.add_row(f"{name}; all partitions published to after (L4)", f"{each.published:.3f} s", limit)
        table.add_row(f"{name}; all partitions consumed from after (L4)", f"{each.consumed:.3f} s", limit)
    Console().print(table)


COMMAND = ProveCommand(
    name="drill",
    about="Kill a server every 10 s, then PostgreSQL a few times, and measure the effect on clients (L3, L4).",
    arguments=arguments,
    run=run,
)
