"""Loads a run: `DIR/run.json`, `DIR/history/<process>.jsonl` and `DIR/truth/<table>-<part>.parquet`.

Whatever is missing, damaged or out of place is told in `cut`, never passed over: nothing may be called valid then.
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
"""What a row takes in a file, about."""


@dataclass(frozen=True, kw_only=True)
class History:
    """All facts of a run, and what is missing of them."""

    tables: Tables
    run: RunInfo
    cut: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(map(len, self.tables.by_name.values()))


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """What there is to be read of a run; `cut` is what is known to be missing before anything was read."""

    run: RunInfo
    files: tuple[Path, ...]
    crashed: frozenset[str]
    parts: tuple[TruthPart, ...]
    cut: tuple[str, ...]

    @property
    def size(self) -> int:
        """About how many rows there are."""
        return sum(path.stat().st_size for path in self.files) // ROW_BYTES + sum(part.rows for part in self.parts)


def open_run(folder: Path) -> RunFiles:
    """Looks what is there, and reads none of it but `run.json`."""
    files = tuple(sorted((folder / HISTORY).glob("*.jsonl")))
    try:
        described = load_run(folder)
    except (OSError, ValueError) as exc:
        cut = (f"no whole run.json: {type(exc).__name__}: {exc}",)
        # Any of them may have been killed: without run.json nobody knows.
        crashed = frozenset(path.stem for path in files)
        return RunFiles(run=RunInfo(), files=files, crashed=crashed, parts=(), cut=cut)
    parts, cut_truth = _truth(folder, described)
    missing = described.processes - {path.stem for path in files}
    strange = {path.stem for path in files} - described.processes
    cut = (
        *(f"{name}: its history is missing" for name in sorted(missing)),
        *(f"{name}: run.json does not know its history" for name in sorted(strange)),
        *(("run.json names no history",) if not described.processes else ()),
        *cut_truth,
    )
    return RunFiles(run=described.run, files=files, crashed=described.crashed, parts=parts, cut=cut)


def load(folder: Path) -> History:
    """The whole run."""
    source = open_run(folder)
    found, cut, names = _histories(source.files, source.crashed)
    found += map(truth.read_part, source.parts)
    run = replace(source.run, names={**names, **source.run.names})
    return History(tables=_tables(found), run=run, cut=(*source.cut, *cut))


def load_files(folder: Path, *, crashed: Collection[str] = (), run: RunInfo | None = None) -> History:
    """Only the histories of a folder, of a run that nobody described. `crashed` may lack their end."""
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
        cut.append("no truth: nobody has asked the servers when all was done")
    return parts, cut


def _tables(found: Iterable[TableColumns]) -> Tables:
    by_name: dict[str, list[TableColumns]] = {name: [] for name in TABLES}
    for part in found:
        by_name[part.name].append(part)
    return Tables(by_name={name: joined(name, parts) for name, parts in by_name.items() if parts})
