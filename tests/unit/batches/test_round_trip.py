"""A batch returns the messages that were put into it, by every way in and out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.batches import (
    FETCH,
    columns,
    concat,
    decode,
    encode,
    from_columns,
    from_messages,
    rows,
    to_messages,
    validate,
    with_positions,
)
from lakelog.errors import InvalidBatch, UnsupportedFormat
from lakelog.model.message import Message
from tests.unit.batches.samples import NOW, messages

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.datetimes(timezones=st.just(UTC))
MESSAGES = st.builds(
    Message,
    value=st.none() | st.binary(max_size=50),
    key=st.none() | st.binary(max_size=20),
    headers=st.none() | st.dictionaries(TEXT, TEXT, max_size=5),
    content_type=st.none() | TEXT,
    correlation_id=st.none() | TEXT,
    created_at=st.none() | TIMES,
    expires_at=st.none() | TIMES,
    idempotency_key=st.none() | TEXT,
)


def as_stored(message: Message) -> Message:
    """Empty headers and no headers are one thing."""
    return replace(message, headers=message.headers or None)


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.sampled_from([1, 20]))
def test_any_messages_come_back_from_their_payload(some: list[Message], times: int) -> None:
    expected = [as_stored(message) for message in some] * times
    payload = encode(from_messages(some * times))
    assert to_messages(decode(payload)) == expected
    assert to_messages(validate(payload)) == expected


@given(st.lists(MESSAGES, min_size=2, max_size=8), st.data())
def test_a_slice_of_a_batch_is_those_messages(some: list[Message], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(some) - 1))
    length = data.draw(st.integers(1, len(some) - start))
    part = decode(encode(from_messages(some))).slice(start, length)
    expected = [as_stored(message) for message in some[start : start + length]]
    assert to_messages(part) == expected
    assert to_messages(decode(encode(part))) == expected


def test_the_servers_columns_come_back_too() -> None:
    message = Message(value=b"v", target_group="billing", lineage="stage-7")
    batch = decode(encode(from_messages([message, replace(message, lineage=None)])))
    assert to_messages(batch) == [message, replace(message, lineage=None)]


def test_one_message_and_many_have_the_same_columns() -> None:
    for message in messages(12):
        assert from_messages([message]).equals(from_messages([message, message]).slice(0, 1))


def test_columns_make_the_batch_that_messages_make() -> None:
    some = messages(60)
    by_columns = from_columns(
        {
            name: [getattr(message, name) for message in some]
            for name in ("idempotency_key", "value", "key", "headers", "content_type", "correlation_id")
        }
        | {"created_at": [m.created_at for m in some], "expires_at": [m.expires_at for m in some]}
    )
    assert by_columns.equals(from_messages(some))


def test_columns_may_be_arrow_arrays_of_another_text_type() -> None:
    values = pa.chunked_array([["a", "b"], ["c"]], pa.large_string())
    batch = from_columns({"value": values, "sequence": [1, 2, 3], "producer": [b"p" * 16] * 3, "lineage": [None] * 3})
    assert columns(batch) == {"value": [b"a", b"b", b"c"], "producer": [b"p" * 16] * 3, "sequence": [1, 2, 3]}


def test_null_columns_cost_nothing_but_the_value_stays() -> None:
    assert from_messages([Message(value=None)]).schema.names == ["value"]
    assert from_messages([Message(value=None)] * 3).schema.names == ["value"]
    assert decode(encode(from_messages([Message(value=None)] * 3))).num_rows == 3
    assert len(encode(from_messages([Message(key=b"k" * 16, value=b"v" * 200)]))) <= 464


@pytest.mark.parametrize(
    ("given_columns", "named"),
    [
        ({"key": [b"k"]}, "value"),
        ({"value": [b"v"], "offset": [1]}, "offset"),
        ({"value": [b"v"], "key": []}, None),
        ({"value": [b"v"], "lineage": [None, None]}, None),
        ({"value": [1]}, None),
    ],
)
def test_columns_that_make_no_batch_are_refused(given_columns: dict[str, list[object]], named: str | None) -> None:
    with pytest.raises(InvalidBatch) as refusal:
        from_columns(given_columns)
    assert refusal.value.subject.get("column") == named


def test_messages_that_make_no_batch_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="at least one"):
        from_messages([])
    lone_surrogate = Message(value=b"v", content_type="\ud800")
    for some in ([lone_surrogate], [lone_surrogate] * 2):
        with pytest.raises(InvalidBatch, match="cannot be stored"):
            from_messages(some)


def test_a_batch_of_other_columns_is_not_encoded() -> None:
    with pytest.raises(InvalidBatch):
        encode(pa.RecordBatch.from_pydict({"value": [b"v"], "key": [b"k"]}))
    with pytest.raises(InvalidBatch):
        encode(pa.RecordBatch.from_pydict({"value": ["text"]}))
    with pytest.raises(InvalidBatch):
        encode(pa.RecordBatch.from_pydict({"value": [b"v"], "else": [b"k"]}))


def test_batches_of_different_columns_become_one() -> None:
    some = messages(9)
    parts = [from_messages(some[:1]), from_messages([Message(value=b"bare")]), from_messages(some[1:])]
    assert to_messages(concat(parts)) == [some[0], Message(value=b"bare"), *some[1:]]
    assert concat(parts[:1]) is parts[0]


def test_only_the_columns_asked_for_are_converted() -> None:
    batch = from_messages([Message(value=b"a", key=b"k"), Message(value=b"b")])
    assert list(rows(batch, ("value", "lineage", "key"))) == [(b"a", None, b"k"), (b"b", None, None)]


def test_readers_get_every_column_and_the_position() -> None:
    some = messages(5)
    batch = with_positions(from_messages(some).slice(1, 3), 4, 1_000, NOW)
    batch.validate(full=True)
    assert batch.schema.equals(FETCH)
    found = columns(batch)
    assert found["partition"] == [4, 4, 4]
    assert found["offset"] == [1_000, 1_001, 1_002]
    assert found["appended_at"] == [NOW] * 3
    assert found["lineage"] == [None] * 3
    assert to_messages(batch.drop_columns("partition")) == some[1:4]


def test_times_keep_their_microseconds_at_both_ends() -> None:
    ends = [datetime(1, 1, 1, tzinfo=UTC), NOW, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    batch = validate(encode(from_messages([Message(value=b"", created_at=end) for end in ends])))
    assert columns(batch)["created_at"] == ends


@pytest.mark.parametrize("door", [decode, validate])
def test_an_unknown_format_is_refused(door) -> None:  # type: ignore[no-untyped-def]
    payload = encode(from_messages(messages(3)))
    for prefix in (b"\x02\0\0\0", b"\0\0\0\0", b"\x01\x01\0\0"):
        with pytest.raises(UnsupportedFormat):
            door(prefix + payload[4:])
    for mask in (1 << 15, 1 << 31, 0, 1):
        with pytest.raises(UnsupportedFormat):
            door(payload[:4] + (mask | (2 if mask > 1 else 0)).to_bytes(4, "little") + payload[8:])
    with pytest.raises(InvalidBatch):
        door(payload[:8])


def test_a_payload_within_a_larger_body_is_read_in_place_or_not() -> None:
    some = messages(60)
    payload = encode(from_messages(some))
    for shift in (0, 1, 8):
        body = memoryview(b"x" * shift + payload)
        assert to_messages(decode(body[shift:])) == some
        assert to_messages(validate(body[shift:])) == some
