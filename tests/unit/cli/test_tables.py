"""Tables within the width of a terminal: nothing is broken in the middle of a word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.tables import lay_out, lay_out_fields, wrap

ERROR = "TimeoutError: no answer from the payment service after 30 seconds; tried 3 times"
LETTERS = [
    ["ID", "TOPIC", "ERROR"],
    ["1-0-4711", "orders", ERROR],
    ["1-0-12", "orders", "KeyError"],
]


def test_a_table_that_fits_is_aligned_and_left_alone() -> None:
    assert list(lay_out([["A", "LONGER"], ["one", "2"], ["x", ""]], 80)) == ["A    LONGER", "one  2", "x"]


def test_without_a_width_everything_is_whole() -> None:
    assert list(lay_out(LETTERS, None, {2}))[1] == f"1-0-4711  orders  {ERROR}"


def test_free_text_is_cut_to_fit() -> None:
    assert list(lay_out(LETTERS, 40, {2})) == [
        "ID        TOPIC   ERROR",
        "1-0-4711  orders  TimeoutError: no answ…",
        "1-0-12    orders  KeyError",
    ]


def test_other_text_is_wrapped_between_words() -> None:
    rows = [["NAME", "RETENTION", "AGE"], ["orders", "7d, 1,000 messages", "3m"]]
    assert list(lay_out(rows, 27)) == [
        "NAME    RETENTION       AGE",
        "orders  7d, 1,000       3m",
        "        messages",
    ]


def test_rows_that_do_not_fit_become_blocks_of_fields() -> None:
    long = "a-name-that-is-longer-than-the-terminal"
    assert list(lay_out([["NAME", "AGE"], [long, "3m"], ["b", "2h"]], 30)) == [
        f"NAME  {long}",
        "AGE   3m",
        "",
        "NAME  b",
        "AGE   2h",
    ]


def test_fields_are_wrapped_below_their_text() -> None:
    assert list(lay_out_fields([("id", "1-0-4711"), ("error", "no answer from the service")], 30)) == [
        "id     1-0-4711",
        "error  no answer from the",
        "       service",
    ]
    assert list(lay_out_fields([("error", "no answer")])) == ["error  no answer"]


def test_a_command_in_backticks_stays_on_one_line() -> None:
    text = "No topics yet. Create one with `lakelog topics create NAME`."
    assert wrap(text, 40) == ["No topics yet. Create one with", "`lakelog topics create NAME`."]
    assert wrap(text, 20) == ["No topics yet.", "Create one with", "`lakelog topics", "create NAME`."]


def test_wide_characters_take_two_columns() -> None:
    assert list(lay_out([["NAME", "AGE"], ["注文", "3m"], ["größe", "2h"]], 80)) == [
        "NAME   AGE",
        "注文   3m",
        "größe  2h",
    ]
    assert list(lay_out([["TEXT"], ["注文" * 20]], 17, {0}))[1] == "注文" * 4 + "…"


HEADINGS = ["ID", "NAME", "STATE", "AGE", "ERROR"]
CELLS = st.lists(st.text("ab1-", max_size=12), min_size=1, max_size=6).map(" ".join)
TABLES = st.integers(1, 5).flatmap(
    lambda count: st.lists(st.lists(CELLS, min_size=count, max_size=count), min_size=1, max_size=4).map(
        lambda rows: [HEADINGS[:count], *rows]
    )
)


@given(rows=TABLES, room=st.integers(40, 120), cut=st.sets(st.integers(0, 4)))
def test_no_line_is_too_long_and_no_word_is_lost(rows: list[list[str]], room: int, cut: set[int]) -> None:
    lines = list(lay_out(rows, room, cut))
    assert all(len(line) <= room for line in lines)
    if not cut:
        assert set("\n".join(lines).split()) == {word for row in rows for cell in row for word in cell.split()}
