"""How a counter-example names calls and places. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prove.checker.invariant import RunInfo
from prove.checker.row_matching import Array
from prove.history.tables import TableColumns


def call(run: RunInfo, table: TableColumns, row: int) -> str:
    """`<process>-<counter>`."""
    return f"{run.name(table.process[row])}-{int(table.counter[row])}"


def calls(run: RunInfo, table: TableColumns, rows: Iterable[int]) -> tuple[str, ...]:
    """Several calls, each once; none where nobody is named, as in the final read."""
    return tuple(dict.fromkeys(call(run, table, row) for row in rows if table.process[row]))


def place(run: RunInfo, table: TableColumns, row: int) -> tuple[str, int, int]:
    return run.name(table.topic[row]), int(table.partition[row]), int(table.offset[row])


def shown(run: RunInfo, table: TableColumns, row: int) -> str:
    """A place in a sentence."""
    topic, partition, offset = place(run, table, row)
    return f"{topic}/{partition}@{offset}"


def some(offsets: Array) -> str:
    """A few offsets of perhaps many."""
    listed = [int(each) for each in np.asarray(offsets)[:10]]
    return f"{listed}{' …' if len(offsets) > 10 else ''}"
