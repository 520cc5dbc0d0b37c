"""The command line: `scripts/bench --list`, `scripts/bench NAME [--json] [--size ci|full]`."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import plot
from benchmarks.against import compare
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, BenchmarkReport, run, to_stderr, verdicts
from tests.kit.size import Size

_MODULES = (
    "publish_objects",
    "publish_columns",
    "publish_single",
    "outbox_latency",
    "outbox_open_transaction",
    "outbox_bulk",
    "delayed_waiting",
    "publish_latency",
    "fetch_arrow",
    "fetch_objects",
    "fetch_cold",
    "read_arrow",
    "held_snapshot",
    "disk",
    "consume_objects",
    "consume_arrow",
    "consume_handler",
    "consume_handler_delivery",
    "consume_handler_sync",
    "consume_default",
    "delivery_latency",
    "fan_out",
    "consume_held_snapshot",
    "idle",
    "spark_read",
    "spark_s3",
    "spark_count",
    "spark_typed",
    "spark_write",
    "spark_latency",
    "spark_idle",
)


def main() -> int:
    arguments = _arguments()
    benchmarks = known()
    if arguments.plot:
        plot.DRAWING.write_text(plot.draw(plot.saved(), benchmarks))
        to_stderr(f"drew {plot.DRAWING}")
        return 0
    if arguments.list or arguments.name is None:
        for each in benchmarks.values():
            print(f"{each.name:<22} {each.about} ({each.unit}; {_targets(each)})")
        return 0
    benchmark = benchmarks.get(arguments.name)
    if benchmark is None:
        to_stderr(f"bench: unknown benchmark {arguments.name!r}. Run scripts/bench --list")
        return 2
    if arguments.against is not None:
        return _compare(arguments)
    plan = _plan(benchmark, arguments)
    # The corpus belongs to the benchmark, not to the client: scanning it in the garbage collector would be measured as
    # well.
    to_stderr(f"{plan.size.value} size, {len(plan.corpus):,} different messages")
    gc.collect()
    gc.freeze()
    report = run(benchmark, plan, to_stderr)
    if arguments.save:
        to_stderr(f"saved {plot.save(report)}")
    if arguments.json:
        print(msgspec.json.encode(asdict(report)).decode())
    else:
        _print(benchmark, report)
    return 0


def known() -> dict[str, Benchmark]:
    """Return all benchmarks by name."""
    found = (import_module(f"benchmarks.{name}").BENCHMARK for name in _MODULES)
    return {benchmark.name: benchmark for benchmark in found}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure Lakelog and its peers in one run.")
    parser.add_argument("name", nargs="?", help="name of the benchmark; see --list")
    parser.add_argument("--list", action="store_true", help="list all benchmarks and their targets")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--save", action="store_true", help="save the report for the drawing")
    parser.add_argument("--plot", action="store_true", help="draw the saved reports as benchmarks/figures/figures.svg")
    parser.add_argument("--size", choices=[size.value for size in Size], default=Size.FULL.value)
    parser.add_argument("--rounds", type=int, help="number of rounds of Lakelog and the peers")
    parser.add_argument("--messages", type=int, help="messages per leg, for counted legs")
    parser.add_argument("--seconds", type=float, help="seconds per leg, for timed legs")
    parser.add_argument("--no-peers", action="store_true", help="measure only Lakelog")
    parser.add_argument(
        "--against", type=Path, help="another checkout: compare the CPU time per message, or the figure, with it"
    )
    parser.add_argument("--flames", type=Path, help="folder for flame graphs of our legs; sampling slows them down")
    return parser.parse_args()


def _plan(benchmark: Benchmark, arguments: argparse.Namespace) -> BenchmarkPlan:
    given = {name: getattr(arguments, name) for name in ("rounds", "messages", "seconds", "flames")}
    stated = {name: value for name, value in given.items() if value is not None}
    return replace(benchmark.plans[Size(arguments.size)], with_peers=not arguments.no_peers, **stated)


def _compare(arguments: argparse.Namespace) -> int:
    """Compare with another checkout and print one JSON object."""
    options = ["--size", arguments.size]
    for name in ("messages", "seconds"):
        if getattr(arguments, name) is not None:
            options += [f"--{name}", str(getattr(arguments, name))]
    found = compare(arguments.name, arguments.against.resolve(), arguments.rounds or 9, options, to_stderr)
    print(msgspec.json.encode(asdict(found)).decode())
    return 0


def _targets(benchmark: Benchmark) -> str:
    return ", ".join(_target(benchmark, name) for name in benchmark.targets)


def _target(benchmark: Benchmark, name: str) -> str:
    target = benchmark.targets[name]
    if name == OURS:
        return f"{'<=' if benchmark.less_is_better else '>='} {target:,g}"
    if "/" in name:
        one, other = name.split("/")
        return f"{one} >= {target:g} x {other}"
    return f"{name} <= {target:g}" if name.endswith(("_ms", "_us", "connections")) else f">= {target:g} x {name}"


def _print(benchmark: Benchmark, report: BenchmarkReport) -> None:
    console = Console()
    table = Table(title=f"{report.name}: {benchmark.about}")
    for column in ("", report.unit, "Lakelog / peer", "each round"):
        table.add_column(column, justify="left" if column in ("", "each round") else "right")
    rounds = report.conditions["each_round"]
    for name, figure in {OURS: report.ours, **report.peers}.items():
        ratio = f"{report.ratios[name]:.2f} x" if name in report.ratios else ""
        table.add_row(name, f"{figure:,.1f}", ratio, "  ".join(f"{one:,.0f}" for one in rounds[name]))
    console.print(table)
    for name, reached in verdicts(benchmark, report).items():
        console.print(f"target {_target(benchmark, name)}: {'reached' if reached else 'MISSED'}", highlight=False)
    console.print(_conditions(report.conditions), highlight=False, soft_wrap=True)


def _conditions(conditions: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in conditions.items() if name != "each_round")


if __name__ == "__main__":
    sys.exit(main())
