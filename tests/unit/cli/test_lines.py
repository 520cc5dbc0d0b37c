"""Input to messages: formats, keys, and lines that are none."""

from __future__ import annotations

import base64
import io
import json

import msgspec
import pytest

from lakelog.cli.formats import Format
from lakelog.cli.lines import BadLine, Input, read_messages
from lakelog.model.limits import MAX_MESSAGE_BYTES


def read(
    data: bytes, wanted: Format = Format.AUTO, *, name: str = "", key_field: str | None = None
) -> list[Input | BadLine]:
    return list(read_messages(io.BytesIO(data), name, wanted, key_field))


def values(found: list[Input | BadLine]) -> list[object]:
    return [
        bytes(one.value) if isinstance(one.value, msgspec.Raw) else one.value for one in found if isinstance(one, Input)
    ]


def reasons(found: list[Input | BadLine]) -> list[tuple[int, str]]:
    return [(one.number, one.reason) for one in found if isinstance(one, BadLine)]


def test_text_is_a_message_a_line() -> None:
    assert values(read(b"one\n\n  two \r\n12\nlast")) == ["one", "  two ", "12", "last"]


def test_json_lines_are_recognised_by_the_first_line() -> None:
    assert values(read(b'\n{"a": 1}\n[2]\n')) == [b'{"a": 1}', b"[2]"]
    assert values(read(b"{not json\n{}\n")) == ["{not json", "{}"]
    assert values(read(b"1\n2\n", name="numbers.jsonl")) == [b"1", b"2"]


def test_json_keeps_every_digit() -> None:
    text = b'{"total": 1.10, "id": 123456789012345678901234567890}'
    assert values(read(text, Format.JSONL)) == [text]


def test_json_text_is_text_and_null_is_no_value() -> None:
    assert values(read(b'"a\\u00e9"\nnull\ntrue\n', Format.JSONL)) == ["aé", None, b"true"]


def test_keys_come_from_a_field() -> None:
    found = read(b'{"id": "a"}\n{"id": 7}\n', key_field="id")
    assert [one.key for one in found if isinstance(one, Input)] == ["a", 7]
    bad = reasons(read(b'{"id": 1.5}\n{"id": true}\n{}\n[1]\n', Format.JSONL, key_field="id"))
    assert [number for number, _ in bad] == [1, 2, 3, 4] and all("'id'" in reason for _, reason in bad)


def test_a_bad_line_has_its_number_and_reading_goes_on() -> None:
    found = read(b'{"a": 1}\n\n{"a":\n{"a": 2}\n\xff\n', Format.JSONL)
    assert len(values(found)) == 2
    assert [number for number, _ in reasons(found)] == [3, 5]
    assert "not JSON" in reasons(found)[0][1] and "not UTF-8" in reasons(found)[1][1]


def test_deep_json_is_a_bad_line_not_a_crash() -> None:
    deep = b"[" * 100_000
    [(number, _)] = reasons(read(b"{}\n" + deep + b"\n{}\n"))
    assert number == 2


def test_an_endless_line_is_refused_and_the_next_one_read() -> None:
    found = read(b"x" * (5 * MAX_MESSAGE_BYTES) + b"\nnext\n", Format.LINES)
    assert [number for number, _ in reasons(found)] == [1] and values(found) == ["next"]


def test_raw_is_one_message() -> None:
    assert values(read(b"a\nb\x00\xff", Format.RAW)) == [b"a\nb\x00\xff"]
    assert reasons(read(b"x" * (MAX_MESSAGE_BYTES + 1), Format.RAW))[0][0] == 1


def test_whole_messages_are_read_as_tail_prints_them() -> None:
    lines = [
        {
            "id": "1-0-0",
            "offset": 0,
            "key": "k",
            "value": {"a": 1},
            "headers": {"h": "x"},
            "content_type": "application/json",
        },
        {"value": "text", "content_type": "text/plain", "correlation_id": "c"},
        {"value_base64": base64.b64encode(b"\xff\x00").decode(), "key_base64": base64.b64encode(b"\xfe").decode()},
        {"value": None},
        {"value": "json text", "content_type": "application/json"},
    ]
    found = read("\n".join(map(json.dumps, lines)).encode(), Format.MESSAGES)
    assert values(found) == [b'{"a": 1}', "text", b"\xff\x00", None, b'"json text"']
    first, second, third = found[:3]
    assert isinstance(first, Input) and first.key == "k" and first.headers == {"h": "x"}
    assert isinstance(second, Input) and second.correlation_id == "c" and second.content_type == "text/plain"
    assert isinstance(third, Input) and third.key == b"\xfe"


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"value_base64": "?"}', b'{"value": 1, "headers": {"a": 1}}', b"x"])
def test_what_is_no_message_is_said(line: bytes) -> None:
    [(number, reason)] = reasons(read(line, Format.MESSAGES))
    assert number == 1 and "not a message" in reason
