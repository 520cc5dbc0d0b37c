"""The data that callers may send, and the message of each refusal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakelog.batches import columns, encode, encoding, from_columns, from_messages, read_stream, to_messages, validate
from lakelog.batches.encoding import PREFIX
from lakelog.batches.schema import NAMES, PUBLIC, TIME, TYPES
from lakelog.errors import InvalidBatch, TooLarge
from lakelog.model.message import Message
from tests.unit.batches.samples import NOW, caller_batch, messages, stream, table

ONE = pa.array([b"v"], pa.binary())
HEADERS = pa.map_(pa.string(), pa.string())
SERVERS: dict[str, Any] = {
    "producer": b"p" * 16,
    "sequence": 1,
    "target_group": "g",
    "lineage": "l",
    "schema_id": 1,
    "encryption_key_id": "e",
    "origin": "o",
}


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_stream_of_all_public_columns_is_read(compression: str | None) -> None:
    some = messages(60)
    first, second = read_stream(stream([caller_batch(60), caller_batch(60)], compression=compression))
    assert first.equals(second)
    assert first.schema.names == [name for name in NAMES if name in PUBLIC] + ["partition"]
    assert columns(first)["partition"][:4] == [None, 1, 2, None]
    plain = first.drop_columns("partition")
    assert to_messages(plain) == some
    assert plain.equals(from_messages(some))


def test_only_the_value_is_required_and_text_becomes_its_bytes() -> None:
    [batch] = read_stream(stream([table(value=pa.array(["é", None, ""]))]))
    assert columns(batch) == {"value": ["é".encode(), None, b""]}


def test_empty_batches_and_null_columns_are_left_out() -> None:
    nulls = table(value=ONE, key=pa.nulls(1, pa.binary()))
    [batch] = read_stream(stream([nulls.slice(0, 0), nulls, nulls.slice(0, 0)]))
    assert batch.schema.names == ["value"]
    with pytest.raises(InvalidBatch, match="no message"):
        read_stream(stream([nulls.slice(0, 0)]))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_and_zone_are_the_same_instants(unit: str) -> None:
    time = pa.array([NOW], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "Europe/Vienna"), safe=False)
    [batch] = read_stream(stream([table(value=ONE, created_at=time)]))
    expected = NOW.replace(microsecond={"s": 0, "ms": 0}.get(unit, 789))
    assert batch.column("created_at").type == TIME
    assert columns(batch)["created_at"] == [expected]


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_columns_are_refused(name: str) -> None:
    with pytest.raises(InvalidBatch, match="set by the server") as refusal:
        validate(encode(from_columns({"value": [b"v"], name: [SERVERS[name]]})))
    assert refusal.value.subject["column"] == name
    with pytest.raises(InvalidBatch, match="set by the server") as refusal:
        read_stream(stream([table(value=ONE, **{name: pa.array([SERVERS[name]], TYPES[name])})]))
    assert refusal.value.subject["column"] == name


REFUSED = [
    ({"key": ONE}, "value", "'value' is missing"),
    ({"value": ONE, "price": ONE}, "price", "'price' is not known; send only key, value, headers"),
    ({"value": pa.array([1])}, "value", "int64; send it as binary or text"),
    ({"value": pa.array([["a"]])}, "value", "list"),
    ({"value": pa.array(["a"]).dictionary_encode()}, "value", "dictionaries"),
    ({"value": pa.array(["a"], pa.string_view())}, "value", "string_view"),
    ({"value": ONE, "headers": pa.array([{"a": "b"}])}, "headers", "map<string, string>"),
    (
        {"value": ONE, "headers": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))},
        "headers",
        "map<string, string>",
    ),
    ({"value": ONE, "created_at": pa.array([0], pa.timestamp("us"))}, "created_at", "time zone"),
    ({"value": ONE, "created_at": pa.array(["now"])}, "created_at", "time zone"),
    ({"value": ONE, "partition": pa.array(["1"])}, "partition", "int32"),
    ({"value": pa.array([b"u" * 16], pa.uuid())}, "value", "extension"),
    ({"value": pa.array(["{}"], pa.json_())}, "value", "extension"),
]


@pytest.mark.parametrize(("given", "column", "said"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_other_columns_are_refused_by_name(given: dict[str, pa.Array], column: str, said: str) -> None:
    with pytest.raises(InvalidBatch) as refusal:
        read_stream(stream([table(**given)]))
    assert said in str(refusal.value)
    assert refusal.value.subject.get("column", column) == column


def test_an_extension_that_arrow_does_not_know_is_refused() -> None:
    field = pa.field("value", pa.binary(), metadata={"ARROW:extension:name": "theirs", "ARROW:extension:metadata": ""})
    with pytest.raises(InvalidBatch, match="send it as binary or text"):
        read_stream(stream([pa.RecordBatch.from_arrays([ONE], schema=pa.schema([field]))]))


def test_a_column_that_occurs_twice_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="twice"):
        read_stream(stream([pa.RecordBatch.from_arrays([ONE, ONE], names=["value", "value"])]))


def test_bytes_that_are_no_text_are_refused_where_text_is_stored() -> None:
    with pytest.raises(InvalidBatch, match="cannot be read"):
        read_stream(stream([table(value=ONE, content_type=pa.array([b"\xff"], pa.binary()))]))


OVER_LIMIT = [
    Message(value=b"v", key=b"k" * 1025),
    Message(value=b"v" * ((1 << 20) + 1)),
    Message(value=b"v", content_type="c" * 4097),
    Message(value=b"v", correlation_id="c" * 4097),
    Message(value=b"v", idempotency_key="k" * 1025),
    Message(value=b"v", headers={"n" * 4097: "t"}),
    Message(value=b"v", headers={"n": "é" * 2049}),
    Message(value=b"v", headers={f"n{n}": "t" for n in range(65)}),
]
AT_LIMIT = Message(
    value=b"v" * (1 << 20),
    key=b"k" * 1024,
    content_type="c" * 1024,
    correlation_id="c" * 1024,
    idempotency_key="k" * 1024,
    headers={f"{n:02}" + "n" * 4094: "t" * 4096 for n in range(64)},
)


@pytest.mark.parametrize("message", OVER_LIMIT, ids=range(len(OVER_LIMIT)))
def test_a_message_over_a_limit_is_refused(message: Message) -> None:
    fine = Message(value=b"fine", key=b"k", content_type="c")
    batch = from_messages([fine, message, fine])
    for refused in (lambda: validate(encode(batch)), lambda: read_stream(stream([batch]))):
        with pytest.raises(TooLarge) as refusal:
            refused()
        assert "limit" in refusal.value.subject


def test_a_message_at_every_limit_passes() -> None:
    batch = from_messages([AT_LIMIT])
    assert to_messages(validate(encode(batch))) == [AT_LIMIT]
    assert to_messages(read_stream(stream([batch]))[0]) == [AT_LIMIT]


def test_the_count_of_messages_is_limited() -> None:
    most = from_columns({"value": [b"%d" % n for n in range(10_000)]})
    one = from_columns({"value": [b"v"]})
    assert validate(encode(most)).num_rows == 10_000
    with pytest.raises(TooLarge, match="10001 messages"):
        validate(encode(from_columns({"value": [b"%d" % n for n in range(10_001)]})))
    with pytest.raises(TooLarge, match="10001 messages"):
        read_stream(stream([most, one]))
    with pytest.raises(InvalidBatch, match="no message"):
        validate(encode(one.slice(0, 0)))


def headers_of(rows: list[list[tuple[str | None, str | None]]], kind: pa.DataType = HEADERS) -> pa.RecordBatch:
    values = pa.array([b"v"] * len(rows), pa.binary())
    return pa.RecordBatch.from_arrays([values, pa.array(rows, kind)], names=["value", "headers"])


def test_headers_that_are_no_mapping_of_text_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="null"):
        read_stream(stream([headers_of([[("a", None)]])]))
    with pytest.raises(InvalidBatch, match="two headers with the same name"):
        read_stream(stream([headers_of([[("a", "1")], [("b", "1"), ("c", "2"), ("b", "3")]])]))
    [batch] = read_stream(stream([headers_of([[("a", "1"), ("b", "2")], [("b", "1"), ("a", "2")]])]))
    assert columns(batch)["headers"] == [{"a": "1", "b": "2"}, {"b": "1", "a": "2"}]


@pytest.mark.parametrize("entry", [{"key": None, "value": "1"}, {"key": "a", "value": None}, None])
def test_null_parts_of_headers_are_refused(entry: dict[str, str | None] | None) -> None:
    # Arrow aborts the process when it is asked to build such a map, but a list of pairs has the same bytes.
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    batch = table(value=ONE, headers=pa.array([[{"key": "a", "value": "1"}, entry]], pairs))
    prefix = encode(headers_of([[("a", "1")]]))[: PREFIX.size]
    with pytest.raises(InvalidBatch, match="null"):
        validate(prefix + bytes(batch.serialize()))


def test_headers_of_large_text_are_read() -> None:
    large = pa.map_(pa.large_string(), pa.large_string())
    [batch] = read_stream(stream([headers_of([[("a", "1")], []], large)]))
    assert columns(batch)["headers"] == [{"a": "1"}, {}]


@pytest.mark.parametrize("number", [-(2**62), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**62])
def test_times_that_python_cannot_hold_are_refused(number: int) -> None:
    times = pa.array([number, None], pa.int64()).cast(TIME)
    batch = pa.RecordBatch.from_arrays([pa.array([b"v", b"v"]), times], names=["value", "created_at"])
    for refused in (lambda: validate(encode(batch)), lambda: read_stream(stream([batch]))):
        with pytest.raises(InvalidBatch, match="years 1 to 9999"):
            refused()


def test_times_too_far_for_microseconds_are_refused() -> None:
    times = pa.array([2**62], pa.int64()).cast(pa.timestamp("s", "UTC"))
    with pytest.raises(InvalidBatch, match="cannot be read"):
        read_stream(stream([table(value=ONE, created_at=times)]))


@pytest.mark.parametrize(("number", "kind"), [(-1, pa.int32()), (2**40, pa.int64()), (2**63, pa.uint64())])
def test_partitions_that_cannot_be_are_refused(number: int, kind: pa.DataType) -> None:
    with pytest.raises(InvalidBatch):
        read_stream(stream([table(value=ONE, partition=pa.array([number], kind))]))


LACKS = [pa.ArrowMemoryError("malloc of size 64 failed"), OSError("ZSTD compression failed: not enough memory")]


@pytest.mark.parametrize("lack", LACKS)
def test_a_lack_of_memory_is_not_called_an_invalid_batch(monkeypatch: pytest.MonkeyPatch, lack: Exception) -> None:
    """Its caller would give up what is valid."""
    payload, body = encode(from_messages(messages(60))), stream([caller_batch(60)])

    def fails(*_: object, **__: object) -> None:
        raise lack

    for name in ("read_record_batch", "open_stream"):
        monkeypatch.setattr(pa.ipc, name, fails)
    monkeypatch.setattr(encoding, "from_list", fails)
    for step in (
        lambda: validate(payload),
        lambda: read_stream(body),
        lambda: from_messages(messages(2)),
        lambda: from_columns({"value": [b"v"]}),
    ):
        with pytest.raises((MemoryError, OSError)):
            step()
