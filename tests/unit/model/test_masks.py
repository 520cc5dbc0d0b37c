"""Tests of masks: what may be masked, and that a masked field is gone while all others stay as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import InvalidRequest
from lakelog.model.filter import parse
from lakelog.model.masks import HIDDEN, MASK, MASKED, MAX_MASKS, WHOLE, Masks, check_masks

SECRET = "4111-1111"


def shown(masks: str | list[str], value: bytes) -> bytes | None:
    return Masks.of([masks] if isinstance(masks, str) else masks).value(value)


@pytest.mark.parametrize(
    ("masks", "value", "expected"),
    [
        ("value.card.n", b'{"card": {"n": 1, "x": 1.0}, "y": 1e2}', '{"card":{"n":"•••","x":1.0},"y":1e2}'),
        ("value.card", b'{"card": {"n": 1}, "n": 1234567890123456789012}', '{"card":"•••","n":1234567890123456789012}'),
        ("value.a.b", b'[{"a": [{"b": 1}, {"c": 2}, [{"b": 3}]]}]', '[{"a":[{"b":"•••"},{"c":2},[{"b":"•••"}]]}]'),
        ("value.a.b", b'{"a": null, "b": 1}', '{"a":null,"b":1}'),
        ("value.a.b", b'{"a": "text", "b": 1}', '{"a":"•••","b":1}'),
        ("value.a.b", b'{"a": 7, "b": [ 1 ]}', '{"a":"•••","b":[ 1 ]}'),
        ("value.a", b'{"a": null}', '{"a":"•••"}'),
        ("value.a", b'{"\\u0061": 1, "a": 2}', '{"a":"•••"}'),
        ("value['a b']['']", b'{"a b": {"": 1}}', '{"a b":{"":"•••"}}'),
        (["value.a", "value.a.b", "value.c"], b'{"a": {"b": 1}, "c": 2, "d": 3}', '{"a":"•••","c":"•••","d":3}'),
        ("value.x", b"{}", "{}"),
        ("value.x", b"null", "null"),
        ("value.x", b'"text"', MASK),
        ("value.x", b"plain text", MASK),
        ("value.x", b'{"x": 1', MASK),
        ("value.x", b'{"x": NaN}', MASK),
        ("value.x", b"\xff\xfe", MASK),
        ("value.x", b"", MASK),
        ("value.x", b"[" * 100_000, MASK),
        ("value.x", b"[" * 50 + b'{"x": 1}' + b"]" * 50, "[" * 50 + '{"x":"•••"}' + "]" * 50),
        ("value.x", b"[" + b'{"x":1},' * 5000 + b"1]", MASK),
        ("value.x", b'{"y":"' + b"y" * (5 << 20) + b'"}', MASK),
        ("value", b"{}", MASK),
        ("key", b"plain text", "plain text"),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_values(masks: str | list[str], value: bytes, expected: str) -> None:
    found = shown(masks, value)
    assert found is not None and found.decode() == expected


def test_nothing_stays_nothing() -> None:
    assert (HIDDEN.key(None), HIDDEN.value(None), HIDDEN.text("error", None)) == (None, None, None)


def test_keys_headers_and_texts() -> None:
    masks = Masks.of(["key", "headers.Authorization", "correlation_id"])
    assert masks.key(b"\xff") == MASKED
    assert masks.shown_headers({"AUTHORIZATION": "x", "y": "z"}) == {"AUTHORIZATION": MASK, "y": "z"}
    assert (masks.text("correlation_id", "c"), masks.text("error", "e")) == (MASK, "e")
    assert Masks.of(["headers"]).shown_headers({"a": "b"}) == {"a": MASK}
    assert Masks().key(b"k") == b"k"


def test_the_key_and_the_field_it_is_taken_from_are_masked_together() -> None:
    by_key, by_field, by_value = (Masks.of([mask], "card") for mask in ("key", "value.card.number", "value"))
    assert by_key.value(b'{"card":1,"n":2}') == '{"card":"•••","n":2}'.encode()
    assert by_field.key(b"1") == by_value.key(b"1") == MASKED
    assert Masks.of(["value.n"], "card").key(b"1") == b"1"


def test_masks_have_one_form() -> None:
    given = ["value['card'].number", 'value."card".number', "headers['x-y']", "value['a b']", "value", *WHOLE]
    assert check_masks(given) == ("value.card.number", "headers.x-y", "value['a b']", "value", *WHOLE)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (["offset"], "A mask must be key, headers, "),
        (["key = 1"], "A mask must be key, headers, .* not 'key = 1'"),
        (["'text'"], "A mask must be"),
        (["value."], "A mask must be"),
        (["error.x"], "A mask must be"),
        (["headers[0]"], "A mask must be"),
        (["value.a[0].b"], "covers each element of a list"),
        (["value." + "x" * 5000], "A mask must be"),
        (["value.a" + str(n) for n in range(MAX_MASKS + 1)], "at most 100 masks, not 101"),
        ("key", "must be a list of texts"),
        ([1], "must be a"),
    ],
    ids=str,
)
def test_masks_that_are_refused(given: Any, refusal: str) -> None:
    with pytest.raises(InvalidRequest, match=refusal):
        check_masks(given)


@pytest.mark.parametrize(
    ("where", "is_hidden"),
    [
        ("value.card.number = 1", True),
        ("value.cards[0].number = 1", False),
        ("not (offset = 1 or value.card.number[1] like 'x')", True),
        ("value.card is null", True),
        ("value like '%1%'", True),
        ("value.total > 1 and partition = 0", False),
        ("headers.AUTH in ('a')", True),
        ("headers.other = 'a'", False),
        ("key = 'a'", False),
        ("error like 'a'", True),
        ("1 = value.card.number.x", True),
    ],
)
def test_a_filter_that_would_tell(where: str, is_hidden: bool) -> None:
    masks = Masks.of(["value.card.number", "headers.auth", "error"])
    assert any(map(masks.hides, parse(where).names)) == is_hidden


NAMES = st.sampled_from(["a", "b", "c d", "é", ""]) | st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3)


def _expected(value: Any, paths: list[tuple[str, ...]]) -> Any:
    """Return what the documentation says, from decoded JSON."""
    if () in paths:
        return MASK
    if isinstance(value, list):
        return [_expected(each, paths) for each in value]
    if not isinstance(value, dict):
        return None if value is None else MASK
    below = {name: [path[1:] for path in paths if path[0] == name] for name in value}
    return {name: _expected(each, below[name]) if below[name] else each for name, each in value.items()}


def _masks(paths: list[tuple[str, ...]]) -> Masks:
    quoted = ["value" + "".join("['" + name.replace("'", "''") + "']" for name in path) for path in paths]
    return Masks.of(check_masks(quoted))


@given(JSON, PATHS, st.booleans())
def test_masked_fields_are_gone_and_the_others_stay(value: Any, paths: list[tuple[str, ...]], ascii: bool) -> None:
    found = _masks(paths).value(json.dumps(value, ensure_ascii=ascii).encode(errors="surrogatepass"))
    expected = _expected(value, paths)
    assert found == MASKED if expected == MASK else found is not None and json.loads(found) == expected


@given(JSON, PATHS, st.data())
def test_a_secret_below_a_mask_is_nowhere(value: Any, paths: list[tuple[str, ...]], data: st.DataObject) -> None:
    inner: Any = data.draw(st.sampled_from([SECRET, [SECRET], {SECRET: 1}, {"x": {"y": SECRET}}]))
    for name in reversed(data.draw(st.sampled_from(paths))):
        inner = {**data.draw(st.sampled_from([{}, {"other": value}])), name: inner}
        inner = data.draw(st.sampled_from([inner, [inner], [value, inner]]))
    found = _masks(paths).value(json.dumps(inner).encode())
    assert found is not None and SECRET.encode() not in found


@given(st.binary() | st.text().map(str.encode), PATHS)
def test_no_value_raises(value: bytes, paths: list[tuple[str, ...]]) -> None:
    assert _masks(paths).value(value) is not None
