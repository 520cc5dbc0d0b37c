"""Parses the rows of CSV and Parquet files into messages, in chunks of bounded size. It publishes nothing.

A file whose columns are all fields of a message, `value` among them, holds messages. Otherwise each row is a JSON
object of all its columns.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from lakelog.cli.formats import Format
from lakelog.cli.lines import JSON, MAX_LINE_BYTES, BadLine, Input, bounded_lines, decoded, key_of
from lakelog.errors import InvalidRequest
from lakelog.model.limits import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MESSAGE_COLUMNS = frozenset({"key", "value", "headers", "content_type", "correlation_id"})
"""The columns of a file that holds messages."""

_SAMPLE_ROWS = 1_000
_CHUNK_ROWS = 1_000
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_headers = msgspec.json.Decoder(dict[str, str])

Row = tuple[int, list[str], int]
"""The number of the line at which a row of CSV ends, its cells, and its size in bytes."""


class _Kind(Enum):
    """The JSON type of the cells of a column of CSV."""

    NUMBER = "numbers"
    BOOLEAN = "true or false"
    TEXT = "text"

    def fits(self, cell: str) -> bool:
        if self is _Kind.NUMBER:
            return _NUMBER.fullmatch(cell) is not None
        return self is _Kind.TEXT or cell.lower() in ("true", "false")


def read_rows(
    stream: BinaryIO, wanted: Format, key_field: str | None, size: int | None = None, *, as_text: bool = False
) -> Iterator[Input | BadLine]:
    """Yield the messages of a file of rows, in order.

    Args:
        stream: The file.
        wanted: CSV or Parquet.
        key_field: The column that holds the keys; None for the column `key` if the file holds messages.
        size: The size of the file, if it is known.
        as_text: Whether all cells of CSV are text.
    """
    if wanted is Format.CSV:
        return _CsvReader(stream, key_field, as_text=as_text).messages()
    return _parquet_messages(stream, key_field, size or 0)


class _CsvReader:
    """Reads CSV with a header line. The first rows decide which columns hold numbers."""

    def __init__(self, stream: BinaryIO, key_field: str | None, *, as_text: bool) -> None:
        csv.field_size_limit(MAX_LINE_BYTES)
        self._stream = stream
        self._key_field = key_field
        self._as_text = as_text
        self._row_bytes = 0
        self._rows = csv.reader(self._lines(), strict=True)

    def messages(self) -> Iterator[Input | BadLine]:
        names = self._header()
        if names is None:
            return
        rows = self._read(len(names))
        sample = list(islice(rows, _SAMPLE_ROWS))
        kinds = self._kinds(names, [row[1] for row in sample if not isinstance(row, BadLine)])
        for row in chain(sample, rows):
            if isinstance(row, BadLine):
                yield row
                continue
            try:
                yield self._message(names, kinds, row)
            except ValueError as error:
                yield BadLine(number=row[0], reason=str(error))

    def _header(self) -> list[str] | None:
        try:
            names = next(self._rows, None)
        except csv.Error as error:
            raise InvalidRequest(f"The header line is not CSV: {error}.") from None
        if names is not None:
            _check_names(names, self._key_field)
        return names

    def _kinds(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[_Kind]:
        if self._as_text:
            return [_Kind.TEXT] * len(names)
        return [_kind_of([row[index] for row in rows]) for index in range(len(names))]

    def _message(self, names: Sequence[str], kinds: Sequence[_Kind], row: Row) -> Input:
        if not _holds_messages(names):
            return self._from_cells(names, kinds, row)
        number, cells, size = row
        return _from_fields(
            number, dict(zip(names, (cell or None for cell in cells), strict=True)), size, self._key_field
        )

    def _from_cells(self, names: Sequence[str], kinds: Sequence[_Kind], row: Row) -> Input:
        number, cells, size = row
        parts = []
        key = None
        for name, kind, cell in zip(names, kinds, cells, strict=True):
            parts.append(f"{_quoted(name)}:{_token(name, kind, cell)}")
            if name == self._key_field:
                key = cell
        if self._key_field is not None and not key:
            raise ValueError(f"its column {self._key_field!r}, which holds the key, is empty")
        return Input(number=number, value=msgspec.Raw(f"{{{','.join(parts)}}}".encode()), size=size, key=key)

    def _read(self, width: int) -> Iterator[Row | BadLine]:
        while True:
            self._row_bytes = 0
            try:
                cells = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield BadLine(number=self._rows.line_num, reason=f"it is not CSV: {error}")
                continue
            if cells:
                yield self._checked(cells, width)

    def _checked(self, cells: list[str], width: int) -> Row | BadLine:
        number = self._rows.line_num
        if self._row_bytes > MAX_LINE_BYTES:
            return BadLine(number=number, reason=f"it is longer than a message may be ({MAX_MESSAGE_BYTES} bytes)")
        if len(cells) != width:
            return BadLine(number=number, reason=f"it has {len(cells)} cells, and the header line has {width}")
        if any(not cell.isascii() and not _is_utf8(cell) for cell in cells):
            return BadLine(number=number, reason="it is not UTF-8")
        return number, cells, self._row_bytes

    def _lines(self) -> Iterator[str]:
        # Some programs write a byte order mark, which is not a part of the first name.
        encoding = "utf-8-sig"
        for line in bounded_lines(self._stream):
            self._row_bytes += len(line)
            yield line.decode(encoding, "surrogateescape")
            encoding = "utf-8"


def _kind_of(column: Sequence[str]) -> _Kind:
    """Return the type of the cells of a column. Empty cells are null in every type."""
    filled = [cell for cell in column if cell]
    if not filled:
        return _Kind.TEXT
    return next(kind for kind in _Kind if all(map(kind.fits, filled)))


def _token(name: str, kind: _Kind, cell: str) -> str:
    """Return the JSON of a cell. Numbers keep every digit."""
    if not cell:
        return "null"
    if not kind.fits(cell):
        raise ValueError(
            f"its column {name!r} has {kind.value} in the first {_SAMPLE_ROWS:,} rows, and {cell[:40]!r} is something "
            "else; use --text to publish all cells as text"
        )
    if kind is _Kind.TEXT:
        return _quoted(cell)
    return cell if kind is _Kind.NUMBER else cell.lower()


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_messages(stream: BinaryIO, key_field: str | None, size: int) -> Iterator[Input | BadLine]:
    file = _opened(stream)
    names = file.schema_arrow.names
    _check_names(names, key_field)
    holds_messages = _holds_messages(names)
    row_bytes = size / max(1, file.metadata.num_rows)
    number = 0
    for batch in file.iter_batches(batch_size=_CHUNK_ROWS):
        for row in _python_rows(batch):
            number += 1
            try:
                if holds_messages:
                    yield _from_fields(number, row, row_bytes, key_field)
                else:
                    yield Input(number=number, value=row, size=row_bytes, key=key_of(row, key_field))
            except ValueError as error:
                yield BadLine(number=number, reason=str(error))


def _opened(stream: BinaryIO) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not stream.seekable():
        raise InvalidRequest("Parquet cannot be read from a pipe. Give the name of the FILE.")
    try:
        # Without the pre-buffer, a row group is read chunk by chunk.
        return pq.ParquetFile(stream, pre_buffer=False)
    except pa.ArrowException as error:
        raise InvalidRequest(f"The input is not a Parquet file: {error}.") from error


def _python_rows(batch: Any) -> list[dict[str, Any]]:
    """Return the rows as dicts. Times become microseconds, because Python has no finer ones."""
    import pyarrow as pa

    for index, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            times = batch.column(index).cast(pa.timestamp("us", field.type.tz), safe=False)
            batch = batch.set_column(index, field.name, times)
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="lossy")
    return rows


def _check_names(names: Sequence[str], key_field: str | None) -> None:
    """Raise if the columns cannot be the fields of an object."""
    for index, name in enumerate(names):
        if not name:
            raise InvalidRequest(f"Column {index + 1} has no name. The first line of CSV must be a header line.")
        if name in names[:index]:
            raise InvalidRequest(f"Two columns are named {name!r}. Rename one of them.")
    if key_field is not None and key_field not in names and not _holds_messages(names):
        raise InvalidRequest(f"The input has no column {key_field!r} for the key; it has: {', '.join(names)}.")


def _holds_messages(names: Sequence[str]) -> bool:
    return "value" in names and MESSAGE_COLUMNS.issuperset(names)


def _from_fields(number: int, fields: Mapping[str, Any], size: float, key_field: str | None) -> Input:
    """Return the message whose fields are the columns of a row."""
    content_type = fields.get("content_type")
    value = fields["value"]
    key = fields.get("key")
    if content_type == JSON and isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        try:
            found = decoded(raw)
        except ValueError as error:
            raise ValueError(f"its value is not JSON: {error}") from None
        key = key_of(found, key_field) if key is None else key
        value, content_type = msgspec.Raw(raw), None
    return Input(
        number=number,
        value=value,
        size=size,
        key=key,
        headers=_headers_of(fields.get("headers")),
        content_type=content_type,
        correlation_id=fields.get("correlation_id"),
    )


def _headers_of(given: str | Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(given, str):
        return dict(given or {})
    try:
        return _headers.decode(given)
    except msgspec.MsgspecError as error:
        raise ValueError(f"its headers are not a JSON object of texts: {error}") from None
