"""The final state: orphaned files, and messages that cannot be read any more."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from lakelog.errors import SegmentDamaged
from lakelog.objectstore import open_store
from lakelog.segments.layout import segment_path
from prove.history.tables import text_id
from prove.lab.truth import STRIDE, LabTruth, _orphans, _readable


def test_files_that_no_live_segment_names_are_told() -> None:
    store = open_store("memory://")
    live, orphan, foreign = (segment_path(1, each, 3, 10, 25) for each in (7, 7, 8))
    for path in (live, orphan, foreign, "e1/t7/notes.txt"):
        store.put(path, b"content")
    (row,) = _orphans(store, "e1/t7", {live}, "orders")
    assert (row["topic"], row["partition"], row["first"], row["end"]) == (text_id("orders"), 3, 10, 25)
    assert row["exists"] and not row["live"]


def offsets_of(lost: range, edges: set[int]) -> list[int]:
    """Return the offsets that are read of 5,000 messages, in batches of ten, if some cannot be read."""

    def read_range(topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        for at in range(first, end, 10):
            if at in lost:
                raise SegmentDamaged("The file is missing.")
            yield pa.RecordBatch.from_pydict({"offset": list(range(at, min(at + 10, end)))})

    log: Any = SimpleNamespace(lake=SimpleNamespace(read_range=read_range))
    batches = _readable(log, "orders", 0, (0, 5000), edges)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_what_cannot_be_read_is_left_out_and_what_is_behind_it_is_read() -> None:
    assert offsets_of(range(0), set()) == list(range(5000))
    assert offsets_of(range(100, 250), {250, 4000}) == [*range(100), *range(250, 5000)]
    assert offsets_of(range(100, 250), set()) == [*range(100), *range(100 + STRIDE, 5000)]
    assert offsets_of(range(4900, 5000), set()) == list(range(4900))


def test_a_dead_letter_that_was_redriven_is_told_with_its_copy() -> None:
    topology: Any = SimpleNamespace()
    truth = LabTruth(topology)
    truth._hashes = {("jobs", 0, 3): 7, ("jobs", 1, 9): 7}
    assert truth._copy("jobs", {"id": "5-0-3", "partition": 0}) == {}
    copy = truth._copy("jobs", {"id": "5-0-3", "partition": 0, "redriven_to": "5-1-9"})
    assert (copy["redriven"], copy["copy_partition"], copy["copy_offset"]) == (1, 1, 9)
    assert (copy["hash"], copy["copy_hash"]) == (7, 7)
    assert truth._copy("jobs", {"id": "5-0-3", "partition": 0, "redriven_to": "5-1-8"})["copy_hash"] == 0
