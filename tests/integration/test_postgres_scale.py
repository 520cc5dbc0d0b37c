"""Two simulated days of idempotency keys at a small rate; `scripts/prove scale` runs the full size."""

from __future__ import annotations

from statistics import median

import pytest

from prove.scale.keys import run_keys
from tests.kit.size import Size


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_keys_of_two_days_take_bounded_space_and_short_trims(database: str, size: Size) -> None:
    report = await run_keys(
        database,
        per_second=size.pick(ci=1, full=100),
        full_per_second=size.pick(ci=3, full=1000),
    )
    for line in report.lines():
        print(line)
    assert report.problems(size.pick(ci=median, full=max)) == []
    assert report.emptied >= 2
