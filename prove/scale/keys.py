"""Two days of idempotency keys, hour by hour, on PostgreSQL with its default settings.

An hour passes by moving the begin and the end of the periods back. Rows are inserted by SQL, and some keys by the store
itself. Every trim is timed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg

from lakelog.storage.postgres import migrate, open_store
from lakelog.storage.store import Append, Appended, KeyedMessage, PartitionStore, Payload

HOURS = 42
"""Longer than the 33 hours after which the first period is emptied."""
KEPT_HOURS = 34
MAX_TRIM_SECONDS = 1.0
_PID = 1 << 16
_HOUR = timedelta(hours=1)
_SIZE = (
    "select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c "
    "where c.relkind = 'r' and c.relname ~ '^(key_append|key_reservation|producer)_[0-5]$'"
)
_FILL = (
    "insert into lakelog.key_append select $1, $2, decode(md5($3 || '.' || n), 'hex'), n, now() + interval '1 day' "
    "from generate_series(1, $4::integer) n",
    "insert into lakelog.key_reservation select $1, $2 >> 16, decode(md5($3 || '.' || n), 'hex'), "
    "decode(md5(n::text), 'hex'), 0, now() + interval '1 day 1 minute' from generate_series(1, $4::integer) n",
)


@dataclass(kw_only=True)
class KeysReport:
    """The measured values of a run."""

    rows: list[int] = field(default_factory=list)
    """Keys per hour."""
    trim_seconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    """Bytes on disk after each hour's trim, indexes included."""
    emptied: int = 0
    largest_emptied_rows: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def bound(self) -> int:
        """Return the bytes of the keys that may be stored at a time, with a fifth for pages that are not full."""
        most = max(sum(self.rows[max(0, end - KEPT_HOURS) : end]) for end in range(1, len(self.rows) + 1))
        return int(1.2 * most * self.bytes[7] / sum(self.rows[:8])) + (2 << 20)

    def problems(self, judged: Callable[[list[float]], float] = max) -> list[str]:
        """Return what is not as required. `judged` chooses the trim to judge; a busy machine delays single ones."""
        found = list(self.wrong)
        if judged(self.trim_seconds) >= MAX_TRIM_SECONDS:
            found.append(f"a trim took {judged(self.trim_seconds):.3f} s")
        if max(self.bytes) > self.bound:
            found.append(f"{max(self.bytes)} bytes on disk, more than {self.bound}")
        if not self.emptied:
            found.append("no period was emptied")
        return found

    def lines(self) -> list[str]:
        return [
            f"{sum(self.rows):,} keys in {len(self.rows)} hours, at most {max(self.rows) // 3600:,}/s",
            f"longest of {len(self.trim_seconds)} trims {max(self.trim_seconds):.3f} s, "
            f"{self.emptied} periods emptied, the largest with {self.largest_emptied_rows:,} keys",
            f"at most {max(self.bytes) / 1e6:,.0f} MB on disk, {self.bytes[-1] / 1e6:,.0f} MB at the end",
        ]


async def run_keys(url: str, *, per_second: int, full_per_second: int) -> KeysReport:
    """Store `HOURS` hours of keys: one hour at the full rate, the others at `per_second`."""
    await migrate(url)
    store, admin = await open_store(url), await asyncpg.connect(url)
    report = KeysReport()
    try:
        await store.heads_create([_PID], 0)
        await admin.execute("set synchronous_commit = off")
        used: list[bytes] = []
        for hour in range(HOURS):
            # The full hour is in the first period, so that it is emptied during the run.
            rate = full_per_second if hour == 1 else per_second
            await _fill(admin, hour, 3600 * rate)
            report.rows.append(3600 * rate)
            used.append(await _publish(store))
            await _pass_an_hour(admin, used)
            await _trim(store, admin, report)
            report.wrong += await _misjudged(store, used, hour)
    finally:
        await store.close()
        await admin.close()
    return report


async def _fill(admin: asyncpg.Connection, hour: int, count: int) -> None:
    slot = await admin.fetchval("select active from lakelog.period_slots()")
    for statement in _FILL:
        await admin.execute(statement, slot, _PID, str(hour), count)


async def _publish(store: PartitionStore) -> bytes:
    key = secrets.token_bytes(16)
    assert isinstance(await _append(store, key), Appended)
    return key


async def _append(store: PartitionStore, key: bytes) -> object:
    keyed = [KeyedMessage(key_hash=key, start=0)]
    append = Append(pid=_PID, epoch=0, payloads=[Payload(data=b"x", count=1)], keyed=keyed)
    return (await store.append([append]))[0]


async def _pass_an_hour(admin: asyncpg.Connection, used: list[bytes]) -> None:
    await admin.execute(
        "update lakelog.period set began_at = began_at - $1::interval, ended_at = ended_at - $1::interval", _HOUR
    )
    await admin.execute(
        "update lakelog.key_append set expires_at = expires_at - $1::interval where pid = $2 and key_hash = any ($3)",
        _HOUR,
        _PID,
        used,
    )


async def _trim(store: PartitionStore, admin: asyncpg.Connection, report: KeysReport) -> None:
    due = await admin.fetchval(
        "select slot from lakelog.period where ended_at <= clock_timestamp() - lakelog.period_memory()"
    )
    rows = 0 if due is None else await admin.fetchval("select count(*) from lakelog.key_append where slot = $1", due)
    began = time.perf_counter()
    trimmed = await store.trim({})
    report.trim_seconds.append(time.perf_counter() - began)
    report.emptied += trimmed.periods
    report.largest_emptied_rows = max(report.largest_emptied_rows, rows if trimmed.periods else 0)
    report.bytes.append(await admin.fetchval(_SIZE))


async def _misjudged(store: PartitionStore, used: list[bytes], hour: int) -> list[str]:
    """Return what is wrong with the keys of the last day: each is still a duplicate."""
    recent = used[-23:]
    found = [key for key in recent if isinstance(await _append(store, key), Appended)]
    return [f"hour {hour}: {len(found)} keys of the last day were appended again"] if found else []
