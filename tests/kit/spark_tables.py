"""Reads what Spark's file sink has committed, without Spark. Files of an unfinished micro-batch are not included."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq


def committed_files(folder: Path) -> list[Path]:
    """Return the rows of a table that a streaming query writes; empty if it has committed nothing yet."""
    found: set[Path] = set()
    for log in folder.glob("_spark_metadata/[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            found.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)))
    return sorted(found)


def committed_table(folder: Path, columns: list[str]) -> pa.Table:
    tables = [pq.read_table(file, columns=columns) for file in committed_files(folder)]
    return pa.concat_tables(tables) if tables else pa.table({name: [] for name in columns})
