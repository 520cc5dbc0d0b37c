"""Writes and reads Avro object container files, as far as Iceberg's manifests need them.

A schema is the JSON of Avro; records are dicts. Unions have null and one other type. It knows nothing of Iceberg.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakelog.errors import UnsupportedFormat

Schema = Any
"""The decoded JSON of an Avro schema."""
Record = dict[str, Any]
_Write = Callable[[bytearray, Any], None]
_Read = Callable[[bytes, int], tuple[Any, int]]

_MAGIC = b"Obj\x01"
_METADATA = {"type": "map", "values": "bytes"}
_SYNC_BYTES = 16


def write_avro(schema: Schema, records: Iterable[Record], about: Mapping[str, str]) -> bytes:
    """Return a file with the records.

    Args:
        schema: The schema of a record.
        records: The records.
        about: Texts for the header of the file, by name.
    """
    write = _writer(schema)
    block, count = bytearray(), 0
    for record in records:
        write(block, record)
        count += 1
    header = {**about, "avro.schema": json.dumps(schema), "avro.codec": "deflate"}
    sync = secrets.token_bytes(_SYNC_BYTES)
    out = bytearray(_MAGIC)
    _writer(_METADATA)(out, {name: text.encode() for name, text in header.items()})
    out += sync
    if count:
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = packer.compress(bytes(block)) + packer.flush()
        _write_long(out, count)
        _write_bytes(out, packed)
        out += sync
    return bytes(out)


def read_avro(data: bytes) -> list[Record]:
    """Return the records of a file. Raise `UnsupportedFormat` if it is not such a file."""
    if data[:4] != _MAGIC:
        raise UnsupportedFormat("The file is not an Avro file.")
    header, at = _reader(_METADATA)(data, 4)
    if header.get("avro.codec") != b"deflate":
        raise UnsupportedFormat("The Avro file is not compressed with deflate, so another program wrote it.")
    read = _reader(json.loads(header["avro.schema"]))
    at += _SYNC_BYTES
    records: list[Record] = []
    while at < len(data):
        count, at = _read_long(data, at)
        packed, at = _read_bytes(data, at)
        block, place = zlib.decompress(packed, wbits=-zlib.MAX_WBITS), 0
        for _ in range(count):
            record, place = read(block, place)
            records.append(record)
        at += _SYNC_BYTES
    return records


def _writer(schema: Schema) -> _Write:
    """Return the function that writes values of the schema."""
    if isinstance(schema, list):
        return _optional_writer(schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        fields = [(field["name"], _writer(field["type"])) for field in schema["fields"]]

        def write_record(out: bytearray, value: Any) -> None:
            for name, write in fields:
                write(out, value[name])

        return write_record
    if kind == "array":
        return _block_writer(_writer(schema["items"]), lambda value: value)
    if kind == "map":
        write_value = _writer(schema["values"])

        def write_entry(out: bytearray, entry: Any) -> None:
            _write_bytes(out, entry[0].encode())
            write_value(out, entry[1])

        return _block_writer(write_entry, lambda value: value.items())
    return _WRITERS[kind]


def _optional_writer(schema: Schema) -> _Write:
    assert schema[0] == "null" and len(schema) == 2, schema
    write_it = _writer(schema[1])

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            write_it(out, value)

    return write


def _block_writer(write_item: _Write, items: Callable[[Any], Iterable[Any]]) -> _Write:
    def write(out: bytearray, value: Any) -> None:
        if value:
            _write_long(out, len(value))
            for item in items(value):
                write_item(out, item)
        out.append(0)

    return write


def _write_long(out: bytearray, value: int) -> None:
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)


def _write_bytes(out: bytearray, value: bytes) -> None:
    _write_long(out, len(value))
    out += value


_WRITERS: dict[str, _Write] = {
    "int": _write_long,
    "long": _write_long,
    "boolean": lambda out, value: out.append(1 if value else 0),
    "bytes": _write_bytes,
    "string": lambda out, value: _write_bytes(out, value.encode()),
}


def _reader(schema: Schema) -> _Read:
    """Return the function that reads a value of the schema, and the position after it."""
    if isinstance(schema, list):
        return _optional_reader(schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        fields = [(field["name"], _reader(field["type"])) for field in schema["fields"]]

        def read_record(data: bytes, at: int) -> tuple[Any, int]:
            record: Record = {}
            for name, read in fields:
                record[name], at = read(data, at)
            return record, at

        return read_record
    if kind == "array":
        return _block_reader(_reader(schema["items"]))
    if kind == "map":
        read_entries = _block_reader(_entry_reader(_reader(schema["values"])))

        def read_map(data: bytes, at: int) -> tuple[Any, int]:
            entries, at = read_entries(data, at)
            return dict(entries), at

        return read_map
    return _READERS[kind]


def _optional_reader(schema: Schema) -> _Read:
    read_it = _reader(schema[1])

    def read(data: bytes, at: int) -> tuple[Any, int]:
        which, at = _read_long(data, at)
        return read_it(data, at) if which else (None, at)

    return read


def _entry_reader(read_value: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        name, at = _read_bytes(data, at)
        value, at = read_value(data, at)
        return (name.decode(), value), at

    return read


def _block_reader(read_item: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, at = _read_long(data, at)
            if count == 0:
                return items, at
            for _ in range(count):
                item, at = read_item(data, at)
                items.append(item)

    return read


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_long(data, at)
    return data[at : at + length], at + length


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _read_bytes(data, at)
    return value.decode(), at


_READERS: dict[str, _Read] = {
    "int": _read_long,
    "long": _read_long,
    "boolean": lambda data, at: (data[at] == 1, at + 1),
    "bytes": _read_bytes,
    "string": _read_string,
}
