"""The content hash: of the rows alone, and of every one of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.segments.hashing import ContentHash
from lakelog.segments.schema import SCHEMA
from tests.unit.segments.samples import anything, cut, positioned


def _hash(*parts: pa.RecordBatch) -> str:
    content = ContentHash()
    for part in parts:
        content.update(part)
    return content.hexdigest()


@given(anything(), st.lists(st.integers(0, 40), max_size=6))
def test_any_chunking_of_the_same_rows_has_the_same_hash_s20(batch: pa.RecordBatch, cuts: list[int]) -> None:
    assert _hash(*cut(batch, cuts)) == _hash(batch)


@given(anything())
def test_the_hash_follows_from_the_values_not_from_how_arrow_holds_them(batch: pa.RecordBatch) -> None:
    again = pa.RecordBatch.from_pylist(batch.to_pylist(maps_as_pydicts=None), schema=SCHEMA)
    assert _hash(again) == _hash(batch)


@given(anything(), st.data())
def test_any_other_value_has_another_hash(batch: pa.RecordBatch, data: st.DataObject) -> None:
    rows = batch.to_pylist()
    row = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(batch.schema.names))
    rows[row][name] = _other(rows[row][name], name)
    assert _hash(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)) != _hash(batch)


@given(anything(), st.data())
def test_any_swap_of_two_rows_has_another_hash(batch: pa.RecordBatch, data: st.DataObject) -> None:
    rows = batch.to_pylist()
    one, two = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    swapped = list(rows)
    swapped[one], swapped[two] = rows[two], rows[one]
    assert (_hash(pa.RecordBatch.from_pylist(swapped, schema=SCHEMA)) == _hash(batch)) == (one == two)


def test_bytes_hidden_under_a_null_count_for_nothing() -> None:
    """Arrow leaves it open what lies where a value is null."""
    batch = positioned(2)
    data, ends = pa.py_buffer(b"hiddenshown"), pa.array([0, 6, 11], pa.int32()).buffers()[1]
    marks = pa.array([False, True]).buffers()[1]
    number = batch.schema.get_field_index("value")
    hidden = pa.Array.from_buffers(pa.binary(), 2, [marks, ends, data])
    assert hidden.to_pylist() == [None, b"shown"]
    plain = pa.array([None, b"shown"], pa.binary())
    field = batch.schema.field(number)
    assert _hash(batch.set_column(number, field, hidden)) == _hash(batch.set_column(number, field, plain))


def test_texts_cannot_run_together() -> None:
    batch = positioned(2)
    number = batch.schema.get_field_index("value")
    one, two = ([b"ab", b"c"], [b"a", b"bc"])
    field = batch.schema.field(number)
    hashes = {_hash(batch.set_column(number, field, pa.array(values, pa.binary()))) for values in (one, two)}
    assert len(hashes) == 2


def test_the_hash_is_part_of_the_format() -> None:
    """If this fails, segments that are stored somewhere can no longer be verified."""
    assert _hash(positioned(50)) == "76a0e9a4b112468e06df5ce6bc9524d0505c5f1c95ff2b7cc2cf3e60d25ea5d9"


def _other(value: Any, name: str) -> Any:
    if name == "headers":
        return [*(value or []), ("added", "text")]
    if value is None:
        return {"producer": b"p" * 16}.get(name, _FRESH[str(SCHEMA.field(name).type)])
    if isinstance(value, int):
        return value - 1 if value > 0 else value + 1
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else b"x"
    if isinstance(value, str):
        return value + "x"
    return value.replace(microsecond=(value.microsecond + 1) % 1_000_000)


_FRESH = {
    "binary": b"",
    "string": "",
    "int64": 0,
    "int32": 0,
    "timestamp[us, tz=UTC]": positioned(1).column("appended_at")[0].as_py(),
    "fixed_size_binary[16]": b"p" * 16,
}


@pytest.mark.parametrize("name", SCHEMA.names)
def test_an_empty_value_is_not_null(name: str) -> None:
    batch = positioned(1)
    kind = SCHEMA.field(name).type
    fresh: Any = [] if name == "headers" else _FRESH[str(kind)]
    number = batch.schema.get_field_index(name)
    column = [batch.set_column(number, SCHEMA.field(name), pa.array([value], kind)) for value in (None, fresh)]
    assert _hash(column[0]) != _hash(column[1])
