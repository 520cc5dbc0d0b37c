"""The final state that the servers report, as files of the tables: `truth/<table>-<part>.parquet`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prove.history.tables import TABLES, TableColumns

FOLDER = "truth"
_ROWS = 1_000_000
"""The number of rows in a row group, which is read and judged as a whole."""


@dataclass(frozen=True, kw_only=True)
class TruthPart:
    """One row group of a file."""

    path: Path
    group: int
    rows: int

    @property
    def table(self) -> str:
        return table_of(self.path)


def write_truth(folder: Path, columns: TableColumns) -> Path:
    """Add rows to the truth of a run. A table may be written in several parts."""
    where = folder / FOLDER
    where.mkdir(parents=True, exist_ok=True)
    # Several processes may write, so reserve the name before writing.
    for number in itertools.count():
        path = where / f"{columns.name}-{number:04}.parquet"
        try:
            with path.open("xb") as file:
                pq.write_table(to_arrow(columns), file, compression="zstd", row_group_size=_ROWS)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def table_of(path: Path) -> str:
    """Return the table of a file."""
    return path.stem.partition("-")[0]


def parts(folder: Path) -> Iterator[TruthPart]:
    """Yield all row groups of all files. An unreadable file raises."""
    for path in sorted((folder / FOLDER).glob("*.parquet")):
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            yield TruthPart(path=path, group=group, rows=metadata.row_group(group).num_rows)


def counts(folder: Path) -> dict[str, int]:
    """Return the number of rows of each table. A table that was written empty has 0."""
    found: Counter[str] = Counter()
    for path in sorted((folder / FOLDER).glob("*.parquet")):
        found[table_of(path)] += pq.read_metadata(path).num_rows
    return dict(found)


def read_part(part: TruthPart) -> TableColumns:
    return from_arrow(part.table, pq.ParquetFile(part.path).read_row_group(part.group))


def to_arrow(columns: TableColumns) -> pa.Table:
    """Return the columns as an Arrow table. Some columns of the table may be missing."""
    return pa.table({name: pa.array(array) for name, array in columns.arrays.items()})


def from_arrow(name: str, table: pa.Table) -> TableColumns:
    types = TABLES[name]
    if unknown := set(table.column_names) - types.keys():
        raise ValueError(f"'{name}' has no column {', '.join(sorted(unknown))}")
    arrays = {each: table.column(each).to_numpy() for each in table.column_names}
    return TableColumns(name, {each: np.asarray(array, types[each]) for each, array in arrays.items()})
