"""Arrays that are built without `pa.array` are the same as with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakelog.batches.arrays import are_null, filled_numbers, from_list, from_numbers, numbers, repeated_text
from lakelog.batches.schema import HEADERS, TIME

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [b"", b"a", b"bcd"]),
        (pa.binary(), [None, b"a", None]),
        (pa.binary(), [None]),
        (pa.string(), ["", "ä", None, "🙂"]),
        (TIME, [NOON, None, NOON - timedelta(days=40_000), NOON.replace(microsecond=1)]),
        (HEADERS, [{"a": "1", "b": ""}, None, {"ä": "🙂"}]),
        (pa.int32(), [1, None, 3]),
    ],
)
def test_lists_become_the_arrays_that_arrow_makes_of_them(kind: pa.DataType, values: list[Any]) -> None:
    plain = [each if not isinstance(each, dict) else list(each.items()) for each in values]
    array = from_list(values, kind)
    array.validate(full=True)
    assert array.equals(pa.array(plain, kind)) and array.null_count == values.count(None)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), TIME])
def test_numbers_survive_both_ways_and_slices_begin_where_they_begin(kind: pa.DataType) -> None:
    array = from_numbers([5, 6, 7, 8], kind)
    assert array.type == kind and numbers(array).tolist() == [5, 6, 7, 8]
    assert numbers(array.slice(1, 2)).tolist() == [6, 7] and numbers(array.slice(4)).tolist() == []
    assert from_numbers(np.arange(10)[::3], kind).cast(pa.int64()).to_pylist() == [0, 3, 6, 9]


def test_nulls_are_found_and_filled_in_slices_too() -> None:
    array = pa.array([None, 1, None, 3, 4, None, 6, 7, 8, None, 10], pa.int32())
    assert are_null(array).tolist() == array.is_null().to_pylist()
    assert are_null(array.slice(2, 8)).tolist() == array.slice(2, 8).is_null().to_pylist()
    assert filled_numbers(array.slice(5, 3), -1).tolist() == [-1, 6, 7] and filled_numbers(array, -1)[0] == -1
    assert filled_numbers(pa.nulls(2, pa.int32()), -1).tolist() == [-1, -1]


def test_a_repeated_text() -> None:
    assert repeated_text("ä", 3).to_pylist() == ["ä"] * 3
    repeated_text("ä", 3).validate(full=True)


@pytest.mark.parametrize(("kind", "wrong"), [(pa.binary(), 3), (pa.string(), b"a"), (TIME, "noon"), (HEADERS, 3)])
def test_values_of_another_type_are_refused(kind: pa.DataType, wrong: object) -> None:
    with pytest.raises(TypeError):
        from_list([wrong], kind)
