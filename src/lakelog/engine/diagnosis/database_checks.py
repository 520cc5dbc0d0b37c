"""The checks of one database: durability, resources, clock, snapshots, replication and transaction ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from lakelog.engine.diagnosis.steps import (
    failed,
    literal,
    ok,
    quoted,
    set_to,
    shell,
    skipped,
    sql,
    text,
    warning,
)
from lakelog.engine.diagnosis.versions import check_level, check_postgresql, check_schema
from lakelog.model.diagnosis import DatabaseFacts, Expectations, Finding, OpenTransaction, RemedyStep

CLOCK_SECONDS = 1.0
"""The difference of clocks from which a warning is given."""
MAX_CLOCK_SECONDS = 60.0
"""The difference of clocks from which the check fails."""
SLOT_BYTES = 10 << 30
"""The WAL that an active slot may hold."""
LAG_BYTES = 256 << 20
"""The WAL by which a standby may lag."""
XID_WARNING, XID_FAILED = 1_000_000_000, 1_800_000_000
"""PostgreSQL refuses writes at an age of about 2.1 billion."""
_SHOWN = 3
"""The number of transactions, slots and standbys that a finding names."""

Check = Callable[[DatabaseFacts, Expectations], Finding]


def check_database(facts: DatabaseFacts, expected: Expectations, where: str) -> list[Finding]:
    """Return the findings about one database, one for each check.

    Args:
        facts: The measured values.
        expected: The needs of this version and its configuration.
        where: The name of the database in the findings.
    """
    return [replace(check(facts, expected), where=where) for check in _CHECKS]


def check_outbox_database(facts: DatabaseFacts, expected: Expectations, where: str) -> list[Finding]:
    """Return the findings about the database of an application, which has only an outbox.

    Args:
        facts: The measured values.
        expected: The needs of this version and its configuration.
        where: The name of the database in the findings.
    """
    return [replace(check(facts, expected), where=where) for check in _OUTBOX_CHECKS]


def check_durability(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Fail if an acknowledged commit could be lost in a crash."""
    names = ("fsync", "full_page_writes", "synchronous_commit")
    weak = [name for name in names if facts.settings[name].value == "off"]
    if not weak:
        return ok("durability", "fsync, full_page_writes and synchronous_commit are not off")
    steps = [step for name in weak for step in set_to(facts, name, "on")]
    off = ", ".join(f"{name}=off" for name in weak)
    return failed("durability", f"acknowledged messages can be lost in a crash: {off}", *_distinct(steps))


def check_wal_level(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn if neither a standby nor a continuous backup is possible."""
    level, senders = facts.settings["wal_level"].value, facts.number("max_wal_senders")
    if level != "minimal" and senders:
        return ok("wal level", level)
    steps = set_to(facts, "wal_level", "replica", needs_restart=True) if level == "minimal" else []
    if not senders:
        steps += set_to(facts, "max_wal_senders", "10", needs_restart=True)
    measured = f"{level} with {senders} WAL senders: no standby and no continuous backup is possible"
    return warning("wal level", measured, *_distinct(steps))


def check_lock_slots(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Fail if a statement over many partitions could run out of locks. Servers refuse to start then."""
    sessions = facts.number("max_connections") + facts.number("max_prepared_transactions")
    slots = facts.number("max_locks_per_transaction") * sessions
    measured = f"{slots:,} lock slots, {expected.lock_slots:,} needed"
    if slots >= expected.lock_slots:
        return ok("lock slots", measured)
    needed = math.ceil(expected.lock_slots / sessions)
    return failed("lock slots", measured, *set_to(facts, "max_locks_per_transaction", str(needed), needs_restart=True))


def check_connections(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn if another server could not open its connections."""
    most = facts.number("max_connections") - facts.number("superuser_reserved_connections")
    free = most - facts.connections
    measured = f"{facts.connections} of {most} connections used, {expected.connections} needed by one more server"
    if free >= expected.connections:
        return ok("connections", measured)
    # Twice what is used now, so that a few more servers fit.
    raised = 2 * (facts.number("max_connections") + expected.connections)
    steps = set_to(facts, "max_connections", str(raised), needs_restart=True)
    return (failed if free < 2 else warning)("connections", measured, *steps)


def check_clock(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Compare the clock of this machine with that of the database, without the time of the call."""
    apart = max(facts.clock_before - facts.clock, facts.clock - facts.clock_after, timedelta(0))
    seconds = apart.total_seconds()
    side = "behind" if facts.clock < facts.clock_before else "ahead of"
    if seconds < CLOCK_SECONDS:
        return ok("clock", f"less than {CLOCK_SECONDS:g} s from this machine's")
    judge = failed if seconds >= MAX_CLOCK_SECONDS else warning
    return judge(
        "clock",
        f"the database is {show_age(seconds)} {side} this machine",
        text("Synchronise both machines, by NTP: `timedatectl set-ntp true`."),
    )


def check_transactions(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn about old transactions: PostgreSQL removes no row that their snapshots may see."""
    if not facts.sees_all_sessions:
        return _unseen("open transactions", facts)
    return _check_open("open transactions", facts.transactions, expected)


def check_outbox(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn about old transactions with messages in the outbox, which are not published until the end."""
    if not facts.has_outbox:
        return skipped("outbox transactions", "the database has no outbox")
    if not facts.sees_all_sessions:
        return _unseen("outbox transactions", facts)
    return _check_open("outbox transactions", facts.outbox, expected)


def _check_open(check: str, transactions: Sequence[OpenTransaction], expected: Expectations) -> Finding:
    old = [each for each in transactions if each.seconds >= expected.transaction_seconds]
    if not old:
        return ok(check, f"none is older than {show_age(expected.transaction_seconds)}")
    named = "; ".join(_session(each) for each in old[:_SHOWN])
    steps = [
        text("End the transaction in its program, or end its session:"),
        *(sql(f"SELECT pg_terminate_backend({each.pid});") for each in old),
    ]
    return warning(check, f"{len(old)} open, the oldest: {named}", *steps)


def _session(each: OpenTransaction) -> str:
    program = f" of {each.application}" if each.application else ""
    address = f" at {each.address}" if each.address else ""
    return f"pid {each.pid}{program}, user {each.user}{address}, {each.state}, for {show_age(each.seconds)}"


def _unseen(check: str, facts: DatabaseFacts) -> Finding:
    return skipped(
        check,
        f"user {facts.user} may not see the sessions of others",
        sql(f"GRANT pg_read_all_stats TO {quoted(facts.user)};"),
    )


def check_prepared(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn about old prepared transactions, which hold their snapshot even over a restart."""
    old = [each for each in facts.prepared if each.seconds >= expected.transaction_seconds]
    if not old:
        return ok("prepared transactions", f"none is older than {show_age(expected.transaction_seconds)}")
    named = "; ".join(f"{each.name!r} for {show_age(each.seconds)}" for each in old[:_SHOWN])
    steps = [
        text("Commit the transaction with COMMIT PREPARED, or roll it back:"),
        *(sql(f"ROLLBACK PREPARED {literal(each.name)};") for each in old),
    ]
    return warning("prepared transactions", f"{len(old)} open, the oldest: {named}", *steps)


def check_slots(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn about replication slots without a reader: PostgreSQL keeps WAL and rows for them."""
    idle = [each for each in facts.slots if not each.is_active]
    large = [each for each in facts.slots if each.is_active and each.held_bytes > SLOT_BYTES]
    if not idle and not large:
        return ok("replication slots", f"{len(facts.slots)}, none unused")
    shown = (idle or large)[:_SHOWN]
    named = "; ".join(f"{each.name} holds {each.held_bytes >> 20:,} MiB of WAL" for each in shown)
    steps: list[RemedyStep] = [text("Start the reader of the slot again, or drop the slot:")]
    steps += [sql(f"SELECT pg_drop_replication_slot({literal(each.name)});") for each in idle]
    if not idle:
        steps = [text(f"Find out why the reader of slot {shown[0].name} is slow.")]
    return warning("replication slots", f"{'unused' if idle else 'slow'}: {named}", *steps)


def check_standby(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn if a failover could lose acknowledged messages; fail if commits wait for a standby that is missing."""
    names = facts.settings["synchronous_standby_names"].value
    waits = facts.settings["synchronous_commit"].value not in ("off", "local") and bool(names)
    synchronous = [each for each in facts.standbys if each.sync_state in ("sync", "quorum")]
    if waits and not synchronous:
        return failed(
            "standby",
            f"commits wait for a synchronous standby ({names}), and none is connected",
            text("Start the standby again. Until then, continue without it; a failover can then lose messages:"),
            *set_to(facts, "synchronous_standby_names", "''"),
        )
    late = [each for each in facts.standbys if each.lag_bytes > LAG_BYTES]
    if late:
        return warning(
            "standby",
            "; ".join(f"{each.name} lags by {each.lag_bytes >> 20:,} MiB of WAL" for each in late[:_SHOWN]),
            text("Check the network and the disk of the standby."),
        )
    if waits:
        return ok("standby", f"synchronous: {', '.join(each.name for each in synchronous[:_SHOWN])}")
    if facts.standbys:
        candidate = facts.standbys[0].name
        return warning(
            "standby",
            "not durable on failover: no standby is synchronous",
            *set_to(facts, "synchronous_standby_names", literal(quoted(candidate))),
        )
    return warning(
        "standby",
        "not durable on failover: there is no standby",
        text('Add a synchronous standby: see "Run Lakelog in production" in the documentation.'),
    )


def check_transaction_ids(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn long before PostgreSQL refuses writes because transaction ids run out."""
    measured = f"age {facts.xid_age:,} in database {facts.xid_database}; writes are refused at 2.1 billion"
    if facts.xid_age < XID_WARNING:
        return ok("transaction ids", measured)
    judge = failed if facts.xid_age >= XID_FAILED else warning
    return judge("transaction ids", measured, shell(f"vacuumdb {facts.client_options} --all --freeze"))


_CHECKS: tuple[Check, ...] = (
    check_durability,
    check_wal_level,
    check_lock_slots,
    check_connections,
    check_clock,
    check_transactions,
    check_prepared,
    check_slots,
    check_outbox,
    check_transaction_ids,
    check_standby,
    check_postgresql,
    check_schema,
    check_level,
)
_OUTBOX_CHECKS: tuple[Check, ...] = (
    check_durability,
    check_clock,
    check_transactions,
    check_prepared,
    check_outbox,
    check_transaction_ids,
)


def show_age(seconds: float) -> str:
    """Return a duration in a unit that fits: `800 ms`, `12 s`, `3 min`, `2 h`, `5 d`."""
    for limit, size, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _distinct(steps: Iterable[RemedyStep]) -> list[RemedyStep]:
    """Return the steps without repeats. The last of equal steps stays: a reload comes after all changes."""
    return list(dict.fromkeys(reversed(list(steps))))[::-1]
