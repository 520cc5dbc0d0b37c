"""S1 to S7 and S22 on a long valid history with lost responses and repeats: no violation until it is damaged."""

from __future__ import annotations

import random
from pathlib import Path

from prove.checker.catalog import INVARIANTS
from prove.checker.invariant import RunInfo
from prove.checker.judgement import judge_tables
from prove.history.calls import Attempt, PublishedAt
from prove.history.lines import value_hash
from prove.history.loading import load_files
from prove.history.recorder import HistoryRecorder
from prove.history.tables import ReaderKind, TableColumns, Tables, text_id

_ABOUT = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S22")


class _Log:
    """Two partitions in memory; a key stays in its own."""

    def __init__(self) -> None:
        self.parts: list[list[Attempt]] = [[], []]
        self.places: dict[str, PublishedAt] = {}

    def append(self, attempt: Attempt) -> PublishedAt:
        name = attempt.idempotency_key or ""
        if name in self.places:
            known = self.places[name]
            return PublishedAt(partition=known.partition, offset=known.offset, duplicate=True)
        partition = int((attempt.key or "k0")[1:]) % 2
        self.parts[partition].append(attempt)
        self.places[name] = PublishedAt(partition=partition, offset=len(self.parts[partition]) - 1)
        return self.places[name]


def _written(folder: Path, dice: random.Random) -> Tables:
    log, last = _Log(), [0, 0]
    with (
        HistoryRecorder(folder, "w") as writer,
        HistoryRecorder(folder, "x") as other,
        HistoryRecorder(folder, "r") as reader,
    ):
        for number in range(0, 3000, 3):
            batch = [
                Attempt(topic="t", value=writer.value(), key=f"k{each % 9}", idempotency_key=f"i{each}")
                for each in range(number, number + 3)
            ]
            for sender in (writer, other) if dice.random() < 0.3 else (writer,):
                with sender.publish(*batch) as call:
                    placed = [log.append(each) for each in batch] if dice.random() < 0.95 else None
                    if placed is None or dice.random() < 0.05:
                        call.info("the answer was lost")
                    else:
                        call.ok(*placed)
            if number % 50 == 0:
                for partition in (0, 1):
                    _read(reader, log, partition, last[partition])
                    last[partition] = len(log.parts[partition])
        for partition in (0, 1):
            _read(reader, log, partition, 0, final=True)
    return load_files(folder).tables


def _read(reader: HistoryRecorder, log: _Log, partition: int, start: int, *, final: bool = False) -> None:
    with reader.fetch("t", partition, start, reader="final" if final else "fetch") as fetched:
        found = log.parts[partition][start:]
        fetched.saw(
            range(start, start + len(found)),
            [value_hash(each.value) for each in found],
            keys=[text_id(each.key) for each in found],
            bounds=(0, len(log.parts[partition])),
        )


def _broken(tables: Tables) -> set[str]:
    about = [each for each in INVARIANTS if each.name in _ABOUT]
    judged = judge_tables(tables, RunInfo(), invariants=about)
    assert not any(each.doubts for each in judged.values())
    return {name for name, each in judged.items() if each.violations}


def test_s1_to_s7_find_nothing_in_a_long_true_history_and_what_is_damaged_in_it(tmp_path: Path) -> None:
    tables = _written(tmp_path, random.Random(7))
    assert _broken(tables) == set()
    seen, reads = tables["seen"], tables["read"]
    last = (seen.reader == ReaderKind.FINAL) & (seen.partition == 0)
    last &= seen.offset == seen.offset[last].max()
    ends = reads.high_watermark.copy()
    ends[(reads.reader == ReaderKind.FINAL) & (reads.partition == 0)] -= 1
    shorter = {"seen": seen.where(~last), "read": TableColumns("read", {**reads.arrays, "high_watermark": ends})}
    found = _broken(Tables(by_name={**tables.by_name, **shorter}))
    assert {"S1", "S6"} <= found <= {"S1", "S6", "S7"}
