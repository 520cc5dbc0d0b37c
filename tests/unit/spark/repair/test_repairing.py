"""What a redrive makes of the rows of a DataFrame, and how it cuts them; without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from lakelog.errors import InvalidRequest
from lakelog.model.dead_letters import DeadLetter, Repair
from lakelog.model.kinds import DeadLetterState
from lakelog.spark.repair.dead_letter_reader import DEAD_LETTERS, columns_of, fingerprint
from lakelog.spark.repair.repairing import RedriveRow, pages, parse_rate, wanted_of

LETTER = DeadLetter(
    id="1-0-3",
    topic="orders",
    partition=0,
    offset=3,
    error="ValueError: currency",
    deliveries=4,
    failures=4,
    at=datetime.now(UTC),
    owner="w1",
    state=DeadLetterState.DEAD,
    key=b"k",
    raw=b'{"amount": 5}',
    headers={"source": "web"},
)


class Row:
    """As much of Spark's as is used."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def asDict(self) -> dict[str, Any]:
        return self._fields


def row(letter: DeadLetter = LETTER, **changes: Any) -> Row:
    found = columns_of([letter], "billing").to_pylist()[0]
    kept = {name: found[name] for name in ("topic", "group", "id", "key", "value", "headers", "fingerprint")}
    kept["headers"] = dict(kept["headers"])
    return Row(**{name: each for name, each in {**kept, **changes}.items() if each is not ...})


def test_letters_become_rows_of_the_schema() -> None:
    batch = columns_of([LETTER, LETTER], "billing")
    assert batch.schema == DEAD_LETTERS and batch.num_rows == 2
    assert batch.to_pylist()[0]["group"] == "billing" and batch.to_pylist()[0]["value"] == b'{"amount": 5}'


@pytest.mark.parametrize(
    "changes, repair",
    [
        ({"headers": {"a": "b"}}, Repair(value=b'{"amount": 5}', headers={"a": "b"})),
        ({}, None),
        ({"value": bytearray(b'{"amount": 5}')}, None),
        ({"value": b"new"}, Repair(value=b"new", headers={"source": "web"})),
        ({"value": "text"}, Repair(value=b"text", headers={"source": "web"})),
        ({"headers": None}, Repair(value=b'{"amount": 5}', headers={})),
        ({"fingerprint": ..., "headers": ..., "key": ...}, Repair(value=b'{"amount": 5}')),
        ({"fingerprint": ..., "headers": ..., "key": ..., "value": ...}, None),
    ],
)
def test_repaired_is_what_differs(changes: dict[str, Any], repair: Repair | None) -> None:
    assert wanted_of(row(**changes)) == RedriveRow("orders", "billing", "1-0-3", repair)


@pytest.mark.parametrize("changes", [{}, {"fingerprint": ...}, {"key": ..., "headers": ...}])
def test_a_value_that_became_null_is_refused(changes: dict[str, Any]) -> None:
    """`get_json_object` returns NULL for malformed JSON. The original message would be redriven as repaired."""
    found = wanted_of(row(value=None, **changes))
    assert found.repair is None and found.refusal is not None
    assert "Column 'value' of dead letter 1-0-3 is NULL" in found.refusal


def test_a_message_without_a_value_may_be_redriven_with_other_headers() -> None:
    tombstone = replace(LETTER, raw=None)
    assert wanted_of(row(tombstone)) == RedriveRow("orders", "billing", "1-0-3", None)
    found = wanted_of(row(tombstone, headers={"a": "b"}))
    assert found == RedriveRow("orders", "billing", "1-0-3", Repair(headers={"a": "b"}))


def test_a_key_cannot_be_repaired_nor_a_value_be_a_number() -> None:
    with pytest.raises(InvalidRequest, match="keeps keys"):
        wanted_of(row(key=b"other"))
    with pytest.raises(InvalidRequest, match="binary or text"):
        wanted_of(row(value=7))


def test_no_headers_and_empty_headers_are_the_same() -> None:
    assert fingerprint(b"k", b"v", None) == fingerprint(b"k", b"v", {}) != fingerprint(None, b"v", {})
    assert fingerprint(None, None, {}) != fingerprint(None, b"", {})


def test_pages_are_of_one_group_fit_into_a_call_and_name_each_once() -> None:
    small = [RedriveRow("orders", "billing", f"1-0-{n % 25}", None) for n in range(50)]
    other = [RedriveRow("orders", "shipping", "1-0-0", None)]
    large = [RedriveRow("orders", "shipping", f"1-1-{n}", Repair(value=b"x" * (1 << 20))) for n in range(3)]
    found = list(pages([*small, *other, *large], per_call=20))
    assert len(found) >= 4
    for page in found:
        assert len({(each.topic, each.group) for each in page}) == 1 and len({each.id for each in page}) == len(page)
        assert len(page) == 1 or sum(each.size for each in page) <= 2 << 20
    assert {each.id for page in found for each in page} == {each.id for each in [*small, *other, *large]}


@pytest.mark.parametrize(
    "text, per_second", [(None, None), (100, 100.0), ("100/s", 100.0), ("60/min", 1.0), ("60/m", 1.0), ("1.5", 1.5)]
)
def test_rates(text: Any, per_second: float | None) -> None:
    assert parse_rate(text) == per_second


@pytest.mark.parametrize("text", ["fast", "0/s", "-1", "10/day"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="rate"):
        parse_rate(text)
