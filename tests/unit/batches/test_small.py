"""Small batches are written and read without Arrow: the same bytes, the same messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.batches import columns, decode, encode, from_columns, from_messages
from lakelog.batches.small import FEW, decode_small, encode_small
from lakelog.model.message import Message
from tests.unit.batches.samples import NOW, messages, stream
from tests.unit.batches.test_round_trip import MESSAGES, TEXT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANY = st.builds(lambda m, t, i: replace(m, target_group=t, lineage=i), MESSAGES, st.none() | TEXT, st.none() | TEXT)


def as_arrow_reads(payload: bytes) -> dict[str, list[Any]]:
    """The columns of a payload in Arrow's reading, in the form of `decode_small`."""
    found = columns(decode(payload))
    for name in ("created_at", "expires_at"):
        if name in found:
            found[name] = [None if at is None else (at - EPOCH) // timedelta(microseconds=1) for at in found[name]]
    return found


@settings(max_examples=200)
@given(st.lists(ANY, min_size=1, max_size=FEW))
def test_a_small_batch_has_the_bytes_that_arrow_writes(some: list[Message]) -> None:
    assert encode_small(some) == encode(from_messages(some))


@settings(max_examples=100)
@given(st.lists(ANY, min_size=1, max_size=FEW))
def test_a_small_batch_is_read_as_arrow_reads_it(some: list[Message]) -> None:
    payload = encode(from_messages(some))
    expected = as_arrow_reads(payload)
    assert decode_small(payload) == expected
    assert decode_small(memoryview(b"........" + payload)[8:]) == expected


def test_a_slice_of_a_batch_is_read_as_arrow_reads_it() -> None:
    """Callers' frames are stored as they came: also where a writer left out the nulls, or kept what it cut off."""
    batch = from_messages(messages(FEW))
    for start in range(FEW):
        payload = encode(batch.slice(start, 3))
        assert decode_small(payload) == as_arrow_reads(payload)


def test_validity_without_a_null_is_read() -> None:
    array = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\3"), pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"ab")], 0
    )
    payload = encode(from_columns({"value": array}))
    assert decode_small(payload) == {"value": [b"a", b"b"]}


def test_what_is_not_small_is_left_to_arrow() -> None:
    many = messages(FEW + 1)
    assert encode_small(many) is None and encode_small([]) is None
    assert decode_small(encode(from_messages(many))) is None
    assert decode_small(encode(from_messages(messages(60)))) is None
    compressed = bytearray(encode(from_messages(messages(1)))[:8])
    raw = stream([from_messages(messages(1))], compression="zstd")
    schema_end = 8 + int.from_bytes(raw[4:8], "little")
    assert decode_small(bytes(compressed) + raw[schema_end:]) is None


def test_columns_of_other_types_and_other_formats_are_left_to_arrow() -> None:
    batch = from_columns({"value": [b"v"], "sequence": [7]})
    assert decode_small(encode(batch)) is None
    payload = encode(from_messages(messages(1)))
    assert decode_small(b"\2" + payload[1:]) is None
    assert decode_small(payload[:4] + b"\xff" * 4 + payload[8:]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        Message(value="text"),  # type: ignore[arg-type]
        Message(value=b"v", key=7),  # type: ignore[arg-type]
        Message(value=b"v", content_type=b"bytes"),  # type: ignore[arg-type]
        Message(value=b"v", correlation_id="\ud800"),
        Message(value=b"v", created_at=NOW.replace(tzinfo=None)),
        Message(value=b"v", headers={"name": None}),  # type: ignore[dict-item]
    ],
)
def test_what_the_types_do_not_allow_is_left_to_arrow(wrong: Message) -> None:
    assert encode_small([wrong]) is None
    assert encode_small([*messages(2), wrong]) is None
