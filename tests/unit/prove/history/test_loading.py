"""Loading: a run with missing or damaged parts reports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakelog.model.group import Exponential, Fixed, Order
from prove.checker.invariant import FaultInterval, GroupRules, RunInfo
from prove.history.file_reader import CHUNK, FileReader
from prove.history.loading import HISTORY, load, load_files, load_run, save_run, write_truth
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.history.tables import CallOutcome, columns, text_id

Lines = Callable[[list[bytes]], list[bytes]]


def write(folder: Path, process: str = "p1") -> None:
    with HistoryRecorder(folder, process) as recorder:
        for number in range(2):
            with recorder.publish(Attempt(topic="t", value=recorder.value(), key="k")) as call:
                call.ok(PublishedAt(partition=0, offset=number))


def change(path: Path, how: Lines) -> None:
    path.write_bytes(b"".join(how(path.read_bytes().splitlines(keepends=True))))


DAMAGES: dict[str, Lines] = {
    "torn last line": lambda lines: [*lines[:-1], lines[-1][:-5]],
    "last newline gone": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "end gone": lambda lines: lines[:-1],
    "outcome and end gone": lambda lines: lines[:-2],
    "line in the middle gone": lambda lines: lines[:1] + lines[2:],
    "first line gone": lambda lines: lines[1:],
    "a whole call gone": lambda lines: lines[2:],
    "line twice": lambda lines: [lines[0], *lines],
    "lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "not JSON": lambda lines: [lines[0], b"\x00\x00\n", *lines[2:]],
    "unknown field": lambda lines: [lines[0].replace(b'"topic"', b'"tropic"'), *lines[1:]],
    "another's line": lambda lines: [lines[0].replace(b'"p1"', b'"p2"'), *lines[1:]],
    "more after the end": lambda lines: [*lines, lines[-1].replace(b'"line":4', b'"line":5')],
    "a place too few": lambda lines: [lines[0], lines[1].replace(b'"offsets":[0]', b'"offsets":[]'), *lines[2:]],
    "a hash too large": lambda lines: [lines[0].replace(b'"hashes":[', b'"hashes":[99999999999999999999,'), *lines[1:]],
    "empty": lambda lines: [],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_marks_the_history_as_cut(tmp_path: Path, damage: str) -> None:
    write(tmp_path, "p0")
    write(tmp_path)
    assert load_files(tmp_path).cut == ()
    change(tmp_path / "p1.jsonl", DAMAGES[damage])
    history = load_files(tmp_path)
    assert len(history.cut) == 1 and "p1" in history.cut[0]
    # The readable part is kept, as a hint.
    assert history.rows >= 2


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in ("end gone", "outcome and end gone")])
def test_a_kill_excuses_only_what_is_missing_at_the_end(tmp_path: Path, damage: str) -> None:
    write(tmp_path)
    change(tmp_path / "p1.jsonl", DAMAGES[damage])
    at_the_end = damage in ("torn last line", "last newline gone", "empty")
    assert bool(load_files(tmp_path, crashed=["p1"]).cut) is not at_the_end


def test_a_kill_may_tear_the_last_write_which_then_never_was(tmp_path: Path) -> None:
    write(tmp_path)
    change(tmp_path / "p1.jsonl", lambda lines: [*lines[:3], lines[3][:30]])
    history = load_files(tmp_path, crashed=["p1"])
    assert history.cut == ()
    assert sorted(history.tables["attempt"].outcome.tolist()) == [CallOutcome.OK, CallOutcome.INFO]


def test_nothing_is_a_cut(tmp_path: Path) -> None:
    assert load_files(tmp_path).cut
    assert load_files(tmp_path, crashed=["p9"]).cut[-1] == "p9: its history is missing"


def test_a_large_file_comes_in_chunks(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder:
        for _ in range(3):
            attempts = [Attempt(topic="t", value=b"v")] * (CHUNK // 2)
            with recorder.publish(*attempts) as call:
                call.placed([0] * len(attempts), range(len(attempts)))
    sizes = [len(chunk) for chunk in FileReader(tmp_path / "p1.jsonl", crashed=False).chunks()]
    assert sizes == [CHUNK, CHUNK // 2]


# Whole runs -------------------------------------------------------------------------------------------------------


RUN = RunInfo(
    names={text_id(name): name for name in ("t", "g", "h", "p1")},
    rules={
        (text_id("t"), text_id("g")): GroupRules(retries=Fixed(max=7, seconds=0.5), order=Order.PARTITION),
        (text_id("t"), text_id("h")): GroupRules(retries=Exponential(max=2, jitter=0.5)),
    },
    crashed=frozenset({text_id("p1")}),
    faults=(FaultInterval(kind="kill", began_ns=5, ended_ns=6, about="server 1"),),
    load_ns=(1, 9),
    healed_ns=10,
    drained_ns=11,
    targets={"L3": 0.999},
)


def make(folder: Path) -> Path:
    """Write a complete run of two processes, of which p1 was killed."""
    (folder / HISTORY).mkdir()
    write(folder / HISTORY, "p0")
    write(folder / HISTORY, "p1")
    change(folder / HISTORY / "p1.jsonl", DAMAGES["end gone"])
    for partition in range(2):
        write_truth(folder, columns("seen", [{"topic": 1, "partition": partition, "offset": 4, "hash": -5}]))
    write_truth(folder, columns("dead"))
    save_run(folder, RUN, processes=["p0", "p1"])
    return folder


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    history = load(make(tmp_path))
    assert history.cut == ()
    assert history.tables["seen"].partition.tolist() == [0, 1]
    assert history.tables["seen"].hash.tolist() == [-5, -5]
    assert len(history.tables["attempt"]) == 4
    names = {**RUN.names, text_id("p0"): "p0"}
    assert replace(history.run, names=RUN.names) == RUN
    assert {number: history.run.names[number] for number in names} == names
    assert load_run(tmp_path).truth == {"seen": 2, "dead": 0}


MISSING: dict[str, tuple[Callable[[Path], object], str]] = {
    "run.json": (lambda folder: (folder / "run.json").unlink(), "run.json"),
    "half of run.json": (lambda folder: (folder / "run.json").write_bytes(b'{"processes":'), "run.json"),
    "a history": (lambda folder: (folder / HISTORY / "p0.jsonl").unlink(), "p0: its history is missing"),
    "a killed one's history": (lambda folder: (folder / HISTORY / "p1.jsonl").unlink(), "p1: its history is missing"),
    "a process in run.json": (lambda folder: write(folder / HISTORY, "p2"), "p2: run.json does not list"),
    "the end of a history": (
        lambda folder: change(folder / HISTORY / "p0.jsonl", DAMAGES["end gone"]),
        "p0.jsonl: the end line is missing",
    ),
    "a file of truth": (lambda folder: (folder / "truth" / "seen-0001.parquet").unlink(), "'seen': 1 rows of 2"),
    "an empty file of truth": (lambda folder: (folder / "truth" / "dead-0000.parquet").unlink(), "'dead': 0 rows"),
    "half a file of truth": (
        lambda folder: (folder / "truth" / "seen-0000.parquet").write_bytes(b"PAR1"),
        "the truth cannot be read",
    ),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_is_told(tmp_path: Path, what: str) -> None:
    take, reason = MISSING[what]
    take(make(tmp_path))
    history = load(tmp_path)
    assert any(reason in each for each in history.cut), history.cut


def test_a_run_whose_truth_nobody_asked_is_cut(tmp_path: Path) -> None:
    (tmp_path / HISTORY).mkdir()
    write(tmp_path / HISTORY)
    save_run(tmp_path, RunInfo(), processes=["p1"])
    (reason,) = load(tmp_path).cut
    assert "no truth" in reason
