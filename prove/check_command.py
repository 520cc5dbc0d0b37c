"""`scripts/prove check DIR`: judges the run in a folder, in this process or with Spark, and prints the verdicts."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prove.checker.catalog import INVARIANTS
from prove.checker.judgement import CheckVerdict, Judgement, judge
from prove.commands import ProveCommand
from prove.history.loading import open_run

SPARK_FROM = 2_000_000
"""The number of rows from which Spark is used by default. Smaller runs are faster in this process, because Spark
takes ten seconds to start.
"""
EXIT = {CheckVerdict.VALID: 0, CheckVerdict.INVALID: 1, CheckVerdict.UNKNOWN: 2}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder with run.json, history/ and truth/")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--spark", action="store_true", default=None, help="judge with Spark, whatever the size of the run"
    )
    how.add_argument(
        "--no-spark", dest="spark", action="store_false", help="judge in this process, whatever the size of the run"
    )
    parser.add_argument(
        "--master", default="local[2]", help="Spark master; its executors must have access to the folder"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: Namespace) -> int:
    began = time.perf_counter()
    size = open_run(arguments.folder).size
    by_spark = size >= SPARK_FROM if arguments.spark is None else arguments.spark
    print(f"about {size:,} rows, judged {'with Spark' if by_spark else 'in this process'}", file=sys.stderr)
    if by_spark:
        from prove.checker.spark_job import judge_folder

        judged = judge_folder(arguments.folder, master=arguments.master)
    else:
        judged = judge(arguments.folder)
    if arguments.json:
        print(as_json(judged))
    else:
        show(judged, seconds=time.perf_counter() - began)
    return EXIT[overall(judged)]


def overall(judged: Mapping[str, Judgement]) -> CheckVerdict:
    """Return the worst verdict; unknown if there are no verdicts."""
    verdicts = {each.verdict for each in judged.values()}
    if CheckVerdict.INVALID in verdicts:
        return CheckVerdict.INVALID
    return CheckVerdict.UNKNOWN if CheckVerdict.UNKNOWN in verdicts or not verdicts else CheckVerdict.VALID


def as_json(judged: Mapping[str, Judgement]) -> str:
    found = {
        name: {
            "verdict": each.verdict.value,
            "violations": [str(violation) for violation in each.violations],
            "doubts": each.doubts,
            "rows": each.rows,
            "seconds": round(each.seconds, 3),
        }
        for name, each in judged.items()
    }
    return msgspec.json.encode({"verdict": overall(judged).value, "invariants": found}).decode()


def show(judged: Mapping[str, Judgement], *, seconds: float) -> None:
    console = Console()
    table = Table(title=f"{overall(judged).value}, in {seconds:.1f} s")
    for column in ("", "verdict", "rows", "seconds"):
        table.add_column(column, justify="right" if column in ("rows", "seconds") else "left", no_wrap=True)
    table.add_column("statement, or the first counter-example", overflow="fold")
    says = {each.name: each.says for each in INVARIANTS}
    for name, each in judged.items():
        # An invariant that the run did not test is neither violated nor proved.
        verdict = each.verdict.value if each.rows or each.verdict is not CheckVerdict.VALID else "not touched"
        shown = str(each.violations[0]) if each.violations else each.doubts[0] if each.doubts else says[name]
        table.add_row(name, verdict, f"{each.rows:,}", f"{each.seconds:.2f}", Text(shown))
    console.print(table)


COMMAND = ProveCommand(name="check", about="Judge the run in a folder.", arguments=arguments, run=run)
