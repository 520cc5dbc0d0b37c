"""Writes many dead letters and samples by SQL, where calls would take long.

The copies are complete rows. This module does not publish messages.
"""

from __future__ import annotations

import asyncpg

from lakelog.engine.history.samples import SampleBody, pack
from lakelog.model.fingerprint import fingerprint_of

BODY = SampleBody(
    finished=1_200_000, lag=900, oldest_seconds=95, leased=64, waiting=3, members=4, dead_letters=300,
    lags=(200, 300, 90, 310),
)  # fmt: skip


async def copy_dead_letters(admin: asyncpg.Connection, group: str, count: int, clusters: int) -> None:
    """Give a group so many dead letters in so many clusters: copies of those that it has, at other offsets."""
    reasons = [f"{_letters(number)}Error: order 17 has no total" for number in range(clusters)]
    await admin.execute(
        "with one as (select d.*, row_number() over (order by d.pid) as place, count(*) over () as places "
        "             from lakelog.dead_letter d join lakelog.consumer_group g using (group_id) where g.name = $1) "
        "insert into lakelog.dead_letter (group_id, pid, message_offset, epoch, state, at, deliveries, failures, "
        "                                 reason, owner, payload, traceback, fingerprint) "
        "select group_id, pid, 1000 + n, epoch, state, at - n * interval '1 second', deliveries, failures, "
        "       replace(c.reason, '17', n::text), owner, payload, null, c.fingerprint "
        "from one join generate_series(0, $2::integer - 1) n on n % places = place - 1 "
        "join unnest($3::text[], $4::bigint[]) with ordinality c (reason, fingerprint, number) "
        "    on c.number = n % cardinality($3) + 1",
        group,
        count,
        reasons,
        [fingerprint_of(reason).number for reason in reasons],
        timeout=600,
    )


def _letters(number: int) -> str:
    """Return a name without digits, which do not count in a fingerprint."""
    return "".join("ABCDEFGHIJ"[int(digit)] for digit in str(number))


async def write_samples(admin: asyncpg.Connection, now: int, days: tuple[int, int, int]) -> None:
    """Write samples of all known series for so many days: each minute, each ten minutes, and each hour.

    `now` is the minute after the last sample. The rows are in the order of time, as servers write them.
    """
    for (table, every), most in zip((("minute", 1), ("ten_minutes", 10), ("hour", 60)), days, strict=True):
        width = await admin.fetchval("select (lakelog.history_lengths($1)).width", f"sample_{table}")
        for minute in range(now - most * 1440, now, width):
            await admin.execute("select lakelog.history_extend($1, $2)", f"sample_{table}", minute)
        await admin.execute(
            f"insert into lakelog.sample_{table} select s.series, m, $1 "
            f"from generate_series({now - most * 1440}, {now - every}, {every}) m, lakelog.sample_series s "
            "order by m, s.series on conflict do nothing",
            pack(BODY),
            timeout=600,
        )
