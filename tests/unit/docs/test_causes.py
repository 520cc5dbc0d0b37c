"""The reference lists every cause of a group that is stuck, in the order in which they count."""

from __future__ import annotations

from lakelog.model.stuck import StuckCode
from tests.unit.docs.markdown import code, reference, section, table


def test_causes_stand_in_the_order_in_which_they_count() -> None:
    documented = [code(row[0]) for row in table(section(reference("cli"), "Causes"), "code")]
    assert documented == list(StuckCode)
