"""Selected rows of a table: by a mask or by indices, once or repeatedly, with columns extracted on first use."""

from __future__ import annotations

import numpy as np
import pytest

from prove.history.tables import TableColumns, columns, joined


def table() -> TableColumns:
    return columns("cut", [{"topic": 7, "first": first, "end": first + 10} for first in (30, 10, 20, 40)])


def test_a_mask_and_indices_choose_the_same() -> None:
    by_mask, by_index = table().where(np.array([True, False, True, False])), table().where(np.array([0, 2]))

    assert (len(by_mask), by_mask.first.tolist()) == (2, [30, 20])
    assert by_index.end.tolist() == by_mask.end.tolist() == [40, 30]


def test_choosing_again_is_among_those_that_were_chosen() -> None:
    chosen = table().where(np.array([0, 1, 3])).sorted_by("first").where(np.array([False, True, True]))

    assert chosen.first.tolist() == [30, 40]
    assert chosen.where(chosen.first > 30).end.tolist() == [50]


def test_all_columns_are_there_for_who_wants_them() -> None:
    chosen = table().where(np.array([3]))

    assert chosen.arrays.keys() == table().arrays.keys()
    assert {len(array) for array in chosen.arrays.values()} == {1}
    assert joined("cut", [chosen, table()]).first.tolist() == [40, 30, 10, 20, 40]


def test_what_is_no_column_is_no_attribute() -> None:
    for each in (table(), table().where(np.array([0]))):
        with pytest.raises(AttributeError, match="owner"):
            _ = each.owner
