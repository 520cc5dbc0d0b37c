"""Whatever bytes a caller sends, they are read or refused: no crash, no memory beyond the limits."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelog.batches import decode, encode, from_columns, from_messages, read_stream, to_messages, validate
from lakelog.batches.framing import _follow, _Table
from lakelog.errors import InvalidBatch, TooLarge
from tests.unit.batches.samples import messages, stream, table

SOME = messages(60)
PAYLOAD = encode(from_messages(SOME))
SMALL = encode(from_messages(messages(3)))
META = 16  # after the payload's prefix and the frame's


def places(payload: bytes) -> dict[str, int]:
    """Where the numbers stand that a caller could lie with."""
    (size,) = struct.unpack_from("<i", payload, 12)
    metadata = memoryview(payload)[META : META + size]
    message = _Table(metadata, _follow(metadata, 0))
    batch = message.table(2)
    buffers = META + _follow(metadata, batch.field(2)) + 4
    nodes = META + _follow(metadata, batch.field(1)) + 4
    found = {"version": message.field(0), "body_length": message.field(3), "rows": batch.field(0)}
    return {name: META + at for name, at in found.items()} | {
        "buffers": buffers,
        "nodes": nodes,
        "metadata_length": 12,
        "body": META + size,
    }


def patched(payload: bytes, at: int, layout: str, number: int) -> bytes:
    changed = bytearray(payload)
    struct.pack_into(layout, changed, at, number)
    return bytes(changed)


def first_compressed(payload: bytes) -> int:
    """Where the first buffer that is not empty declares its size."""
    at = places(payload)
    for n in range(20):
        offset, length = struct.unpack_from("<qq", payload, at["buffers"] + 16 * n)
        if length:
            return at["body"] + int(offset)
    raise AssertionError("no buffer")


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytes_are_read_or_refused(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.batches.mutations", str(seed), "2000"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    result = json.loads(done.stdout)
    assert sum(result["outcomes"].values()) == 2000
    # Both doors were passed and both were shut, or the mutations prove nothing.
    assert result["outcomes"]["accepted"] > 20
    assert result["outcomes"]["invalid_batch"] > 500
    assert result["peak_bytes"] < 500 << 20


@pytest.mark.parametrize("payload", [PAYLOAD, SMALL], ids=["compressed", "plain"])
@pytest.mark.parametrize("number", [-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("name", ["rows", "body_length"])
def test_lies_about_rows_and_lengths_are_refused(payload: bytes, name: str, number: int) -> None:
    with pytest.raises((InvalidBatch, TooLarge)):
        validate(patched(payload, places(payload)[name], "<q", number))


@pytest.mark.parametrize("number", [-(2**31), -8, 0, 1, 8, 2**31 - 1])
def test_lies_about_the_metadata_are_refused(number: int) -> None:
    with pytest.raises(InvalidBatch):
        validate(patched(PAYLOAD, places(PAYLOAD)["metadata_length"], "<i", number))


@pytest.mark.parametrize("payload", [PAYLOAD, SMALL], ids=["compressed", "plain"])
@pytest.mark.parametrize("number", [-(2**63), -8, -1, 2**31, 2**40, 2**63 - 1])
@pytest.mark.parametrize("which", range(12))
def test_buffers_outside_of_the_body_are_refused(payload: bytes, which: int, number: int) -> None:
    # Offset and length of the first six buffers, in turn.
    with pytest.raises((InvalidBatch, TooLarge)):
        validate(patched(payload, places(payload)["buffers"] + 8 * which, "<q", number))


@pytest.mark.parametrize("number", [-(2**63), -2, 2**31, 2**40, 2**63 - 1])
def test_a_declared_size_is_bounded_before_it_is_believed(number: int) -> None:
    with pytest.raises((InvalidBatch, TooLarge)):
        validate(patched(PAYLOAD, first_compressed(PAYLOAD), "<q", number))


@pytest.mark.parametrize("which", range(4))
def test_lies_about_nulls_are_refused(which: int) -> None:
    with pytest.raises(InvalidBatch):
        validate(patched(SMALL, places(SMALL)["nodes"] + 8 * which, "<q", 77))


def test_the_version_that_hides_its_compression_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="V5"):
        validate(patched(PAYLOAD, places(PAYLOAD)["version"], "<h", 3))
    with pytest.raises(InvalidBatch, match="V5"):
        read_stream(stream([from_messages(SOME)], version=pa.ipc.MetadataVersion.V4))


def test_every_truncation_is_refused() -> None:
    body = stream([from_messages(messages(3))])
    for end in range(len(SMALL)):
        with pytest.raises((InvalidBatch, TooLarge)):
            validate(SMALL[:end])
    # The end mark of 8 bytes may be missing, as the format says.
    for end in range(len(body) - 8):
        with pytest.raises((InvalidBatch, TooLarge)):
            read_stream(body[:end])
    assert to_messages(read_stream(body[:-8])[0]) == messages(3)


def test_what_follows_the_end_is_refused() -> None:
    body = stream([from_messages(SOME)])
    with pytest.raises(InvalidBatch):
        validate(PAYLOAD + b"x" * 8)
    with pytest.raises(InvalidBatch):
        validate(PAYLOAD + PAYLOAD[8:])
    for rest in (b"\0", b"\xff\xff\xff\xff\0\0\0\0", body):
        with pytest.raises(InvalidBatch):
            read_stream(body + rest)


def test_a_bomb_is_refused_without_unpacking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.concat_arrays([pa.array([b"\0" * (1 << 20)], pa.binary())] * 128)
    body = stream([table(value=values)], compression="zstd")
    assert len(body) < 32 << 10

    def unpacked(*_: object, **__: object) -> None:
        raise AssertionError("Arrow was given the bomb")

    monkeypatch.setattr(pa.ipc, "open_stream", unpacked)
    with pytest.raises(TooLarge, match="decompressed body"):
        read_stream(body)
    with pytest.raises(AssertionError):
        read_stream(stream([table(value=values.slice(0, 1))]))


def test_many_small_bombs_in_one_stream_are_one_bomb() -> None:
    batch = from_columns({"value": [bytes(range(256)) * 2048] * 16})
    body = stream([batch] * 10, compression="zstd")
    with pytest.raises(TooLarge, match="decompressed body"):
        read_stream(body)


def test_an_expansion_of_more_than_the_limit_is_refused() -> None:
    values = [b"\0" * (1 << 20)] * 8
    with pytest.raises(TooLarge, match="factor of 100"):
        read_stream(stream([table(value=pa.array(values))], compression="zstd"))
    payload = encode(from_columns({"value": [b"\0" * 100_000] * 60}))
    with pytest.raises(TooLarge, match="factor of 100"):
        validate(payload)
    with pytest.raises(TooLarge, match="decompressed body"):
        validate(PAYLOAD, max_expanded=1_000)
    same = encode(from_columns({"value": [b"same"] * 1_000}))
    assert validate(same).equals(decode(same))


def test_overlapping_buffers_count_each_time() -> None:
    payload = encode(from_columns({"value": [b"\0" * 300_000, *[b"%d" % n for n in range(99)]]}))
    at = places(payload)["buffers"]
    lengths = [struct.unpack_from("<qq", payload, at + 16 * n) for n in range(3)]
    assert lengths[2][1] > 0
    changed = bytearray(payload)
    struct.pack_into("<qq", changed, at + 16, *lengths[2])
    with pytest.raises((InvalidBatch, TooLarge)):
        validate(bytes(changed))


def test_metadata_and_batches_without_end_are_refused() -> None:
    fields = pa.schema([pa.field("value", pa.binary(), metadata={"x": "y" * 70_000})])
    with pytest.raises(InvalidBatch, match="metadata length"):
        read_stream(stream([pa.RecordBatch.from_arrays([pa.array([b"v"])], schema=fields)]))
    with pytest.raises(TooLarge, match="1024 batches"):
        read_stream(stream([table(value=pa.array([], pa.binary()))] * 2_000))
    with pytest.raises(TooLarge, match="limit is 8388608"):
        read_stream(b"\0" * ((8 << 20) + 1))


@pytest.mark.parametrize("body", [b"", b"\xff\xff\xff\xff\0\0\0\0", b"ARROW1\0\0" * 10, b"{}", b"\0" * 100])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidBatch):
        read_stream(body)


def test_the_file_format_is_refused() -> None:
    sink = pa.BufferOutputStream()
    batch = from_messages(SOME)
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(InvalidBatch, match="file format"):
        read_stream(bytes(sink.getvalue()))


def test_malformed_rows_are_refused_before_anything_reads_them() -> None:
    def with_offsets(*offsets: int) -> Any:
        buffers = [None, pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets)), pa.py_buffer(b"abcdefgh")]
        return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)

    good = with_offsets(0, 1, 2, 3)
    whole = stream([table(value=good)])
    for offsets in [(0, 5, 2, 3), (0, 1, 2, 2**31 - 1), (0, -1, 2, 3), (-8, 1, 2, 3)]:
        body = whole.replace(struct.pack("<4i", 0, 1, 2, 3), struct.pack("<4i", *offsets))
        assert body != whole
        with pytest.raises(InvalidBatch, match="cannot be read"):
            read_stream(body)
    assert read_stream(whole)[0].column(0).to_pylist() == [b"a", b"b", b"c"]
