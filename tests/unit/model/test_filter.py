"""Filters: what they accept, what they mean, and that no text, hostile or not, takes long or runs anything."""

from __future__ import annotations

import json
import pickle
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakelog.errors import InvalidFilter
from lakelog.model import filter as module
from lakelog.model.filter import FilterInput, parse

ORDER = FilterInput(
    key=b"acct_1",
    headers={"source": "checkout", "x-y": "dash", "a.b": "dot", "it's": "quote"},
    value=json.dumps(
        {
            "total": 120,
            "ratio": 0.5,
            "paid": True,
            "note": None,
            "items": [{"id": 7}, {"id": 8}],
            "in": "keyword",
            "2 words": "spaced",
            "name": "Ünal\nB",
        }
    ).encode(),
    content_type="application/json",
    correlation_id="c-1",
    offset=12,
    partition=3,
    error="connect timeout after 30 s",
    deliveries=4,
    failures=2,
)


@pytest.mark.parametrize(
    "text",
    [
        "headers.source = 'checkout'",
        "headers.source = 'checkout' and value.total > 100 and key in ('acct_1', 'b') and error like '%timeout%'",
        "headers['x-y'] = 'dash' and headers.\"x-y\" = 'dash' and headers.x-y = 'dash'",
        "headers['a.b'] = 'dot' and headers.a.b = 'dot'",
        "headers['it''s'] = 'quote'",
        "value.total = 120 and value.total <> 121 and value.total >= 120.0 and value.total < 1.3e2",
        "value.ratio = 0.5 and value.ratio > -1",
        "value.paid = true and value.paid != FALSE",
        "value.items[1].id = 8 and value['items'][0]['id'] = 7",
        "value.in = 'keyword' and value.\"2 words\" = 'spaced'",
        "value.total in (1, 120) and value.total not in (1, 2)",
        "value.note is null and value.missing is null and value.items[2] is null and value.total[0] is null",
        "value.items is not null and value is not null",
        "value.name like '_nal%' and value.name like '%B' and not value.name like 'nal%'",
        "key = 'acct_1' and key > 'acct_0' and key like 'acct%' and key like 'acct\\_1' and not key like 'acct\\%%'",
        "offset = 12 and partition = 3 and deliveries > failures and content_type like '%/json'",
        "correlation_id = 'c-1' or key = 'no'",
        "key = 'no' or (key = 'acct_1' and not (offset < 12 or offset > 12))",
        "'checkout' = headers.source",
        "NOT key = 'no' AND offset IN (12)",
    ],
)
def test_what_matches(text: str) -> None:
    assert parse(text).matches(ORDER)
    assert not parse(f"not ({text})").matches(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "headers.source = 'x'",
        "headers.Source = 'checkout'",
        "value.total = '120'",
        "value.total = true",
        "value.paid = 1",
        "value.paid in (1)",
        "value.total in (true, 'x', null)",
        "value.total like '12%'",
        "value.note = null",
        "value.note != 1",
        "value.total != 'x'",
        "value.missing < 1",
        "value.items = value.items",
        "value = 1",
        "headers.none like '%'",
        "null = null",
        "1 = true",
    ],
)
def test_null_and_other_types_are_neither_equal_nor_unequal(text: str) -> None:
    assert not parse(text).matches(ORDER)


@pytest.mark.parametrize("value", [b"plain", b"\xff\xfe", b"", b"{", b"NaN", b"[" * 100_000, b"1" * 5000, None])
def test_what_is_not_json_has_no_fields(value: bytes | None) -> None:
    subject = FilterInput(value=value)
    assert parse("value.total is null and not value.total = 1").matches(subject)
    assert parse("value is null").matches(subject) == (value is None)


def test_what_is_not_json_is_text_and_what_is_not_text_equals_nothing() -> None:
    assert parse("value = 'plain' and value like 'pl%'").matches(FilterInput(value=b"plain"))
    assert parse("value = 7").matches(FilterInput(value=b"7"))
    odd = FilterInput(key=b"\xff", value=b"\xff")
    assert parse("key is not null and value is not null").matches(odd)
    assert not parse("key like '%' or value like '%' or key = value").matches(odd)


def test_an_empty_subject_has_only_nulls() -> None:
    for name in ("key", "headers.x", "value", "value.x", "error", "deliveries", "failures", "offset", "partition"):
        assert parse(f"{name} is null and not {name} = 1").matches(FilterInput())


def test_the_value_is_read_once_and_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    read = module._read
    monkeypatch.setattr(module, "_read", lambda value: reads.append(value) or read(value))
    subject = FilterInput(value=b'{"a": 1}', key=b"k")
    assert parse("key = 'k'").matches(subject)
    assert reads == []
    assert parse("value.a = 1 and value.b is null").matches(subject)
    assert parse("value is not null").matches(subject)
    assert reads == [b'{"a": 1}']


def test_a_filter_says_which_fields_it_looks_at() -> None:
    assert parse("headers.x = 'a' or not value.y is null").fields == {"headers", "value"}
    assert parse("1 = 1").fields == frozenset()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("key='a'", "  ((key  =\n'a'))"),
        ("key <> 'a'", "key != 'a'"),
        ("key = 'a' and offset = 1 and partition = 2", "key = 'a' AND (offset = 1 and partition = 2)"),
        ("not key in ('a', 'a')", "key not in ('a')"),
        ("not value is null", "value is not null"),
        ("not not key = 'a'", "key = 'a'"),
        ("offset = 1.0", "offset = 1"),
        ("headers['x'] = 'a'", "headers.x = 'a'"),
    ],
)
def test_equal_filters_are_equal(one: str, other: str) -> None:
    assert parse(one) == parse(other)
    assert hash(parse(one)) == hash(parse(other))
    assert str(parse(one)) == str(parse(other))


def test_brackets_that_count_are_kept() -> None:
    text = "(key = 'a' or key = 'b') and not (offset = 1 and partition in (1, true))"
    assert str(parse(text)) == text
    assert parse(text) != parse("key = 'a' or key = 'b' and not (offset = 1 and partition in (1, true))")


def test_a_filter_can_be_sent_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(parse("key = 'a'")))
    assert again == parse("key = 'a'")
    assert again.matches(FilterInput(key=b"a"))


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("", 1, "headers.<name>"),
        ("key", 4, "is not null"),
        ("key = ", 7, "'text'"),
        ("key = checkout", 7, "'text'"),
        ("key = 'open", 7, "quote"),
        ("key like 3", 10, "%"),
        ("headers = 'x'", 9, "headers.source"),
        ("headers[0] = 'x'", 8, "headers.source"),
        ("value.2a = 1", 7, "brackets"),
        ("value[-1] = 1", 7, "index"),
        ("key in ()", 9, "null"),
        ("key in ('a'", 12, "')'"),
        ("(key = 'a'", 11, "')'"),
        ("key = 'a' key = 'b'", 11, "'and'"),
        ("key is 1", 8, "null"),
        ("offset = 1e999", 10, "1.8e308"),
        ("__import__('os') = 1", 1, "headers.<name>"),
        ("not " * 51 + "key = 'a'", 201, "50"),
        ("(" * 51 + "key = 'a'" + ")" * 51, 51, "50"),
        (" or ".join(["key = 'a'"] * 201), 200 * 13 + 1, "200"),
        ("key = '" + "a" * 4096 + "'", 4097, "4096"),
        (" or ".join(["offset=1 "] * 150 + [f"key='{'a' * 2100}'"]), 1, "4096"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_place(text: str, position: int, said: str) -> None:
    with pytest.raises(InvalidFilter) as refusal:
        parse(text)
    assert refusal.value.position == position
    assert said in refusal.value.detail


def test_what_is_just_within_the_limits_is_accepted() -> None:
    assert parse("not " * 50 + "key = 'a'").matches(FilterInput(key=b"a"))
    assert parse("(" * 50 + "key = 'a'" + ")" * 50).matches(FilterInput(key=b"a"))
    assert parse(" or ".join(["key = 'a'"] * 200)).matches(FilterInput(key=b"a"))
    assert parse("key = '" + "a" * (4096 - 8) + "'").matches(FilterInput(key=b"a" * (4096 - 8)))


@pytest.mark.parametrize("pattern", ["%a%a%a%a%a%a%a%a%a%a%a%ab", "%" + "a_" * 60 + "b%", "%aaaaaaaaaaaaaaab%a_b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    begun = time.process_time()
    assert not parse(f"error like '{pattern}'").matches(FilterInput(error="a" * (1 << 18)))
    assert time.process_time() - begun < 2


def _likes(text: str, pattern: str) -> bool:
    """The meaning of like, by the table of all prefixes."""
    reached = {0}
    for sign in pattern:
        if sign == "%":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(text) and sign in ("_", text[at])}
    return len(text) in reached


@given(st.text("ab\n", max_size=12), st.text("ab\n%_", max_size=8))
@example("a", "a%a")
@example("ab", "ab%b")
@example("aab", "%ab%b")
@example("", "%_")
@example("abab", "%ab")
def test_like_means_what_it_means(text: str, pattern: str) -> None:
    assert parse(f"error like '{pattern}'").matches(FilterInput(error=text)) == _likes(text, pattern)


WORDS = (
    *("key", "headers.a", "headers['x y']", "headers", "value", "value.a", "value[0].b", 'value."x\'y"', "error"),
    *("and", "or", "not", "in", "like", "is", "null", "true", "false", "(", ")", ",", ".", "[", "]", "$", "'", '"'),
    *("=", "!=", "<>", "<", "<=", ">", ">=", "'text'", "'a%'", "'_'''", "1", "-2", "0.5", "1e300", "1e999", "\ud800"),
)


@st.composite
def operands(draw: st.DrawFn) -> str:
    part = st.one_of(
        st.text(max_size=4).map(lambda text: "['" + text.replace("'", "''") + "']"),
        st.integers(0, 10**6).map(lambda number: f"[{number}]"),
        st.sampled_from([".a", ".and", ".x-y", '."q q"']),
    )
    return draw(
        st.one_of(
            st.sampled_from(["key", "error", "deliveries", "headers.a", "null", "true", "false"]),
            st.lists(part, max_size=3).map(lambda path: "value" + "".join(path)),
            st.text(max_size=5).map(lambda text: "'" + text.replace("'", "''") + "'"),
            st.integers().map(str),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
        )
    )


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    one, other = draw(operands()), draw(operands())
    literal = "'" + draw(st.text(max_size=5)).replace("'", "''") + "'"
    form = draw(st.sampled_from(["{0} = {1}", "{0}<>{1}", "{0} <= {1}", "{0} in ({2},1, true)", "{0} not like {2}"]))
    return draw(st.sampled_from([form, "{0} is null", "{0} is not null", "{0} like {2}"])).format(one, other, literal)


FILTERS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not {one}"),
        inner.map(lambda one: f"({one})"),
        st.lists(inner, min_size=1, max_size=3).map(" and ".join),
        st.lists(inner, min_size=1, max_size=3).map(" or ".join),
    ),
    max_leaves=8,
)


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join)), st.binary())
def test_any_text_is_a_filter_or_refused(text: str, value: bytes) -> None:
    try:
        found = parse(text)
    except InvalidFilter:
        return
    assert parse(str(found)) == found
    assert found.matches(FilterInput(value=value, key=value)) in (True, False)


@given(FILTERS, st.one_of(st.binary(max_size=9), st.sampled_from([b'{"a": [1, "x"]}', b"[[true], 0.5]", b'"a"'])))
def test_a_filter_written_out_is_the_same_filter(text: str, value: bytes) -> None:
    found = parse(text)
    again = parse(str(found))
    assert again == found
    assert str(again) == str(found)
    subject = FilterInput(value=value, key=value, headers={"a": "b"}, deliveries=1)
    assert again.matches(subject) is found.matches(subject)
    assert parse(f"not ({text})").matches(subject) is not found.matches(subject)
