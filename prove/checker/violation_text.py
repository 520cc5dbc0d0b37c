"""Texts of counter-examples: names of calls and messages."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prove.checker.invariant import RunInfo
from prove.checker.row_matching import Array
from prove.history.tables import TableColumns


def call(run: RunInfo, table: TableColumns, row: int) -> str:
    """Return the name of a call: `<process>-<counter>`."""
    return f"{run.name(table.process[row])}-{int(table.counter[row])}"


def calls(run: RunInfo, table: TableColumns, rows: Iterable[int]) -> tuple[str, ...]:
    """Return the names of several calls, each once; none for rows without a process, such as the final read."""
    return tuple(dict.fromkeys(call(run, table, row) for row in rows if table.process[row]))


def place(run: RunInfo, table: TableColumns, row: int) -> tuple[str, int, int]:
    return run.name(table.topic[row]), int(table.partition[row]), int(table.offset[row])


def shown(run: RunInfo, table: TableColumns, row: int) -> str:
    """Return topic, partition and offset as text."""
    topic, partition, offset = place(run, table, row)
    return f"{topic}/{partition}@{offset}"


def some(offsets: Array) -> str:
    """Return the first few offsets as text."""
    listed = [int(each) for each in np.asarray(offsets)[:10]]
    return f"{listed}{' …' if len(offsets) > 10 else ''}"
