"""Rows of CSV and Parquet files to messages: columns, types, keys, and rows that are none."""

from __future__ import annotations

import io
import json
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog.cli.app import app
from lakelog.cli.formats import Format
from lakelog.cli.lines import BadLine, Input, format_of
from lakelog.cli.rows import read_rows
from lakelog.errors import InvalidRequest
from lakelog.model.limits import MAX_MESSAGE_BYTES


def read_csv(text: str | bytes, key_field: str | None = None, *, as_text: bool = False) -> list[Input | BadLine]:
    data = text.encode() if isinstance(text, str) else text
    return list(read_rows(io.BytesIO(data), Format.CSV, key_field, as_text=as_text))


def read_parquet(table: pa.Table, key_field: str | None = None) -> list[Input | BadLine]:
    file = io.BytesIO()
    pq.write_table(table, file)
    size = file.tell()
    file.seek(0)
    return list(read_rows(file, Format.PARQUET, key_field, size))


def values(found: list[Input | BadLine]) -> list[Any]:
    return [bytes(one.value) if isinstance(one.value, msgspec.Raw) else one.value for one in messages(found)]


def messages(found: list[Input | BadLine]) -> list[Input]:
    return [one for one in found if isinstance(one, Input)]


def reasons(found: list[Input | BadLine]) -> list[tuple[int, str]]:
    return [(one.number, one.reason) for one in found if isinstance(one, BadLine)]


def test_the_name_of_a_file_gives_its_format() -> None:
    assert format_of("orders.CSV", Format.AUTO) is Format.CSV
    assert format_of("orders.parquet", Format.AUTO) is Format.PARQUET
    assert format_of("orders.csv", Format.LINES) is Format.LINES
    assert format_of("orders", Format.AUTO) is Format.AUTO


def test_a_row_is_an_object_of_its_columns_and_numbers_keep_every_digit() -> None:
    found = read_csv('id,total,paid,note\n1,1.10,true,"a, ""b"""\n2,123456789012345678901234567890,FALSE,\n')
    assert values(found) == [
        b'{"id":1,"total":1.10,"paid":true,"note":"a, \\"b\\""}',
        b'{"id":2,"total":123456789012345678901234567890,"paid":false,"note":null}',
    ]


def test_a_column_with_a_leading_zero_is_text() -> None:
    assert values(read_csv("zip\n01234\n98765\n")) == [b'{"zip":"01234"}', b'{"zip":"98765"}']


def test_all_cells_can_be_text() -> None:
    assert values(read_csv("a,b\n1,true\n", as_text=True)) == [b'{"a":"1","b":"true"}']


def test_a_cell_that_does_not_fit_the_first_rows_is_a_bad_row() -> None:
    text = "n\n" + "1\n" * 1_000 + "x\n2\n"
    found = read_csv(text)
    [(number, reason)] = reasons(found)
    assert number == 1_002 and "column 'n' has numbers in the first 1,000 rows" in reason and "--text" in reason
    assert len(messages(found)) == 1_001
    assert len(messages(read_csv(text, as_text=True))) == 1_002


def test_keys_come_from_a_column_and_stay_in_the_value() -> None:
    found = read_csv("id,n\na,1\n,2\n7,3\n", "id")
    assert [(one.key, one.number) for one in messages(found)] == [("a", 2), ("7", 4)]
    assert reasons(found) == [(3, "its column 'id', which holds the key, is empty")]
    with pytest.raises(InvalidRequest, match="no column 'x' for the key; it has: id, n"):
        read_csv("id,n\na,1\n", "x")


def test_a_file_of_messages_has_their_columns_only() -> None:
    head = "key,value,headers,content_type,correlation_id\n"
    found = read_csv(head + 'k,hello,"{""a"": ""b""}",,c1\n,"{""n"": 1}",,application/json,\n,,,,\n')
    first, second, third = messages(found)
    assert (first.key, first.value, first.headers, first.correlation_id) == ("k", "hello", {"a": "b"}, "c1")
    assert (second.key, second.value, second.content_type) == (None, msgspec.Raw(b'{"n": 1}'), None)
    assert third.value is None
    # A column that is no field of a message: the row is the value.
    assert values(read_csv("sensor,value\na,1\n")) == [b'{"sensor":"a","value":1}']


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a", "it has 1 cells, and the header line has 2"),
        ('a,"b', "it is not CSV: unexpected end of data"),
        ('a,"b"c', "it is not CSV: "),
        (b"a,\xff", "it is not UTF-8"),
        (f"a,{'x' * (2 * MAX_MESSAGE_BYTES + 1)}", "it is "),
        ("a," + ",".join(["x" * MAX_MESSAGE_BYTES] * 3), "it is longer than a message may be"),
    ],
)
def test_a_bad_row_has_its_line_and_reading_goes_on(row: str | bytes, reason: str) -> None:
    data = row if isinstance(row, bytes) else row.encode()
    after = b"" if b'"b' in data and not data.endswith(b"c") else b"\nc,d\n"
    found = read_csv(b"a,b\n1,2\n\n" + data + after)
    [(number, said)] = reasons(found)
    assert number == 4 and said.startswith(reason)
    assert len(messages(found)) == (2 if after else 1)


def test_a_bad_value_or_bad_headers_of_a_message() -> None:
    found = read_csv('value,headers,content_type\n{,,application/json\na,"{""a"": 1}",\n')
    assert [reason.partition(":")[0] for _, reason in reasons(found)] == [
        "its value is not JSON",
        "its headers are not a JSON object of texts",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a,a\n", "Two columns are named 'a'"), ("a,\n", "Column 2 has no name"), ('"a\n', "The header line is not CSV")],
)
def test_a_bad_header_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_csv(text)


def test_an_empty_input_and_a_byte_order_mark() -> None:
    assert read_csv("") == read_csv("a,b\n") == []
    assert values(read_csv(b"\xef\xbb\xbfa\n1\n")) == [b'{"a":1}']


def test_all_rows_of_the_sample_can_be_bad() -> None:
    found = read_csv("a,b\n" + "1\n" * 1_001 + "1,2\n")
    assert (len(reasons(found)), values(found)) == (1_001, [b'{"a":"1","b":"2"}'])


def test_parquet_rows_are_objects_with_their_types() -> None:
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "id": [1],
            "when": pa.array([when], pa.timestamp("ns", "UTC")),
            "day": [date(2026, 1, 31)],
            "total": [Decimal("1.10")],
            "tags": [["a", "b"]],
            "address": [{"zip": "01234"}],
            "more": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "note": pa.array([None], pa.string()),
        }
    )
    [message] = messages(read_parquet(table, "id"))
    assert message.key == 1
    assert json.loads(msgspec.json.encode(message.value)) == {
        "id": 1,
        "when": "2026-01-31T12:00:00Z",
        "day": "2026-01-31",
        "total": "1.10",
        "tags": ["a", "b"],
        "address": {"zip": "01234"},
        "more": {"a": 1},
        "note": None,
    }


def test_parquet_messages_keep_their_bytes() -> None:
    headers = pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string()))
    table = pa.table({"key": [b"\xff", None], "value": [b"\x00\x01", b"x"], "headers": headers})
    first, second = messages(read_parquet(table))
    assert (first.key, first.value, first.headers) == (b"\xff", b"\x00\x01", {"a": "b"})
    assert (second.key, second.value, second.headers) == (None, b"x", {})


def test_parquet_needs_a_file_and_a_valid_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not a Parquet file"):
        list(read_rows(io.BytesIO(b"hello"), Format.PARQUET, None))

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with pytest.raises(InvalidRequest, match="cannot be read from a pipe"):
        list(read_rows(Pipe(), Format.PARQUET, None))


def test_the_memory_does_not_grow_with_the_file() -> None:
    row = b"1," + b"x" * 1_000 + b"\n"

    class Endless(io.RawIOBase):
        left = 20_000

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.left -= 1
            data = row if self.left > 0 else b""
            buffer[: len(data)] = data
            return len(data)

    stream: Any = io.BufferedReader(Endless(), 1 << 12)
    head = io.BytesIO(b"a,b\n")
    reader = read_rows(_Joined(head, stream), Format.CSV, None)
    tracemalloc.start()
    try:
        count = sum(1 for _ in reader)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 19_999
    assert most < 8 << 20  # The file has 20 MB.


class _Joined(io.BytesIO):
    """Two streams after another."""

    def __init__(self, *streams: Any) -> None:
        super().__init__()
        self._streams = streams

    def readline(self, size: int | None = -1, /) -> bytes:
        for stream in self._streams:
            if line := stream.readline(size):
                return bytes(line)
        return b""


URL = "memory://rows-of-the-command-line"


def run(*arguments: str, stdin: str = "", code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--url", URL], input=stdin, prog_name="lakelog")
    assert result.exit_code == code, result.output
    return result


def test_publish_reads_csv_and_parquet_files_and_csv_from_stdin(tmp_path: Path) -> None:
    with lakelog.connect(URL) as log:
        topic = log.topic("orders")
        topic.create()
        (tmp_path / "orders.csv").write_text("id,total\na,1\nb,2\n")
        pq.write_table(pa.table({"id": ["c"], "total": [3]}), tmp_path / "orders.parquet")
        assert (
            json.loads(run("publish", "orders", str(tmp_path / "orders.csv"), "--key-column", "id").stdout)["published"]
            == 2
        )
        run("publish", "orders", str(tmp_path / "orders.parquet"), "--key-column", "id", "--header", "a=b")
        run("publish", "orders", "--format", "csv", stdin="id,total\nd,4\n")
        found = list(topic.read())
        assert [message.value for message in found] == [{"id": i, "total": n} for n, i in enumerate("abcd", start=1)]
        assert [message.key for message in found] == [b"a", b"b", b"c", None]
        assert dict(found[2].headers) == {"a": "b"}
        topic.delete()


def test_publish_names_the_bad_row_and_the_rest_can_be_published(tmp_path: Path) -> None:
    with lakelog.connect(URL) as log:
        topic = log.topic("orders")
        topic.create()
        table = pa.table({"n": [1.0, float("nan"), 3.0]})
        pq.write_table(table, tmp_path / "bad.parquet")
        failed = run("publish", "orders", str(tmp_path / "bad.parquet"), code=1)
        assert "Row 2 is not a message: The value contains nan at n" in failed.stderr
        assert "tail -n" not in failed.stderr
        skipped = run("publish", "orders", str(tmp_path / "bad.parquet"), "--skip-bad", code=1)
        assert "row 2 is skipped" in skipped.stderr and "1 row skipped" in skipped.stderr
        assert json.loads(skipped.stdout)["published"] == 2
        refused = run("publish", "orders", "--value", "a,b", "--format", "csv", code=2)
        assert "the format csv applies to a file or stdin" in refused.stderr
        topic.delete()
