"""Loads a run: `DIR/run.json`, `DIR/history/<process>.jsonl` and `DIR/truth/<table>-<part>.parquet`.

Everything that is missing, damaged or inconsistent is reported in `cut`. Such a run is never called valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from prove.checker.invariant import RunInfo
from prove.history import truth
from prove.history.file_reader import FileReader
from prove.history.run_file import RunDescription, load_run, save_run
from prove.history.tables import TABLES, TableColumns, Tables, joined
from prove.history.truth import TruthPart, write_truth

__all__ = ["History", "RunFiles", "load", "load_files", "load_run", "open_run", "save_run", "write_truth"]

HISTORY = "history"
ROW_BYTES = 40
"""Approximate size of a row in a file."""


@dataclass(frozen=True, kw_only=True)
class History:
    """All facts of a run, and what is missing from them."""

    tables: Tables
    run: RunInfo
    cut: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(map(len, self.tables.by_name.values()))


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The files of a run. `cut` lists what is known to be missing before any file is read."""

    run: RunInfo
    files: tuple[Path, ...]
    crashed: frozenset[str]
    parts: tuple[TruthPart, ...]
    cut: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the approximate number of rows."""
        return sum(path.stat().st_size for path in self.files) // ROW_BYTES + sum(part.rows for part in self.parts)


def open_run(folder: Path) -> RunFiles:
    """Find the files of a run. Only `run.json` is read."""
    files = tuple(sorted((folder / HISTORY).glob("*.jsonl")))
    try:
        described = load_run(folder)
    except (OSError, ValueError) as exc:
        cut = (f"no complete run.json: {type(exc).__name__}: {exc}",)
        # Any process may have been killed: without run.json it is unknown.
        crashed = frozenset(path.stem for path in files)
        return RunFiles(run=RunInfo(), files=files, crashed=crashed, parts=(), cut=cut)
    parts, cut_truth = _truth(folder, described)
    missing = described.processes - {path.stem for path in files}
    strange = {path.stem for path in files} - described.processes
    cut = (
        *(f"{name}: its history is missing" for name in sorted(missing)),
        *(f"{name}: run.json does not list its history" for name in sorted(strange)),
        *(("run.json lists no history",) if not described.processes else ()),
        *cut_truth,
    )
    return RunFiles(run=described.run, files=files, crashed=described.crashed, parts=parts, cut=cut)


def load(folder: Path) -> History:
    """Return the whole run."""
    source = open_run(folder)
    found, cut, names = _histories(source.files, source.crashed)
    found += map(truth.read_part, source.parts)
    run = replace(source.run, names={**names, **source.run.names})
    return History(tables=_tables(found), run=run, cut=(*source.cut, *cut))


def load_files(folder: Path, *, crashed: Collection[str] = (), run: RunInfo | None = None) -> History:
    """Load only the histories of a folder, without run.json. `crashed` processes may lack their end line."""
    files = sorted(folder.glob("*.jsonl"))
    found, cut, names = _histories(files, frozenset(crashed))
    if not files:
        cut.append(f"no history in {folder}")
    cut += [f"{name}: its history is missing" for name in crashed if not (folder / f"{name}.jsonl").exists()]
    known = run or RunInfo()
    return History(tables=_tables(found), run=replace(known, names={**names, **known.names}), cut=tuple(cut))


def _histories(files: Iterable[Path], crashed: frozenset[str]) -> tuple[list[TableColumns], list[str], dict[int, str]]:
    found: list[TableColumns] = []
    cut: list[str] = []
    names: dict[int, str] = {}
    for path in files:
        reader = FileReader(path, crashed=path.stem in crashed)
        found += reader.chunks()
        cut += reader.cut
        names |= reader.names
    return found, cut, names


def _truth(folder: Path, described: RunDescription) -> tuple[tuple[TruthPart, ...], list[str]]:
    try:
        parts, counts = tuple(truth.parts(folder)), truth.counts(folder)
    except (OSError, ValueError) as exc:
        return (), [f"the truth cannot be read: {type(exc).__name__}: {exc}"]
    cut = [
        f"truth of '{name}': {counts.get(name, 0)} rows of {described.truth.get(name, 0)}"
        for name in sorted(counts.keys() | described.truth.keys())
        if counts.get(name) != described.truth.get(name)
    ]
    if not described.truth:
        cut.append("no truth: the final state was never read from the servers")
    return parts, cut


def _tables(found: Iterable[TableColumns]) -> Tables:
    by_name: dict[str, list[TableColumns]] = {name: [] for name in TABLES}
    for part in found:
        by_name[part.name].append(part)
    return Tables(by_name={name: joined(name, parts) for name, parts in by_name.items() if parts})
