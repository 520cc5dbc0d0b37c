"""Batches and files of segments that the tests of this room share."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Sequence
from datetime import timedelta

import pyarrow as pa
from hypothesis import strategies as st

from lakelog import batches
from lakelog.model.segment import SealedSegment
from lakelog.segments.schema import SCHEMA, conform
from lakelog.segments.writer import SegmentWriter
from tests.unit.batches.samples import NOW, messages

PARTITION = 3


def positioned(count: int, *, base: int = 0, run: int = 7) -> pa.RecordBatch:
    """Messages that use every public column; the append time moves on every `run` messages, the epoch every 3 runs."""
    fetched = batches.with_positions(batches.from_messages(messages(count)), PARTITION, base, NOW)
    times = pa.array(
        [NOW + timedelta(seconds=n // run) for n in range(count)], fetched.schema.field("appended_at").type
    )
    epochs = pa.array([n // (3 * run) for n in range(count)], pa.int32())
    number = fetched.schema.get_field_index("appended_at")
    return conform(fetched.set_column(number, "appended_at", times).append_column("epoch", epochs))


def sealed(parts: Sequence[pa.RecordBatch]) -> tuple[bytes, SealedSegment]:
    """The bytes of a segment with these batches, and what the writer says of them."""
    file = io.BytesIO()
    writer = SegmentWriter(file, PARTITION)
    for part in parts:
        writer.write(part)
    about = writer.close()
    return file.getvalue(), about


def cut(batch: pa.RecordBatch, cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """The same rows in several batches."""
    ends = sorted({0, *(n % (batch.num_rows + 1) for n in cuts), batch.num_rows})
    return [batch.slice(start, end - start) for start, end in itertools.pairwise(ends)]


_TEXTS = ("", "a", "ab", "tëxt", "x" * 40)
_MAKERS: dict[str, Callable[[random.Random], object]] = {
    "key": lambda chance: chance.randbytes(chance.randrange(6)),
    "value": lambda chance: chance.randbytes(chance.randrange(30)),
    "headers": lambda chance: [
        (chance.choice(_TEXTS), chance.choice((None, *_TEXTS))) for _ in range(chance.randrange(4))
    ],
    "content_type": lambda chance: chance.choice(_TEXTS),
    "producer": lambda chance: chance.randbytes(16),
    "sequence": lambda chance: chance.randint(-(2**63), 2**63 - 1),
    "created_at": lambda chance: NOW + timedelta(microseconds=chance.randint(-(10**15), 10**15)),
    "schema_id": lambda chance: chance.randint(-(2**31), 2**31 - 1),
    "origin": lambda chance: chance.choice(_TEXTS),
}


# One number is drawn and the rest follows from it: drawing every value takes seconds for each example.
@st.composite
def anything(draw: st.DrawFn) -> pa.RecordBatch:
    """Any messages at all, with nulls anywhere in what is not a position; some columns all null, some without."""
    count = draw(st.integers(1, 40))
    chance = random.Random(draw(st.integers(0, 2**32)))
    columns: dict[str, list[object]] = {
        "partition": [PARTITION] * count,
        "offset": list(range(5, 5 + count)),
        "appended_at": [NOW] * count,
        "epoch": [chance.randrange(2) for _ in range(count)],
    }
    for name, make in _MAKERS.items():
        nulls = chance.choice((0, 0.3, 1))
        columns[name] = [None if chance.random() < nulls else make(chance) for _ in range(count)]
    arrays = [pa.array(column, SCHEMA.field(name).type) for name, column in columns.items()]
    return conform(pa.RecordBatch.from_arrays(arrays, names=list(columns)))
