"""The checks as functions of measured values: the limits that no test reaches with a real fault."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from lakelog.engine.diagnosis import check_cells, check_database, check_object_store, check_server
from lakelog.model.diagnosis import (
    DatabaseFacts,
    Expectations,
    Finding,
    FindingStatus,
    OpenTransaction,
    ReplicationSlot,
    SchemaFacts,
    Setting,
    Standby,
    worst,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    "max_wal_senders": "10",
    "max_connections": "100",
    "superuser_reserved_connections": "3",
    "max_locks_per_transaction": "64",
    "max_prepared_transactions": "0",
    "synchronous_standby_names": "",
}
HEALTHY = DatabaseFacts(
    database="log",
    user="lakelog",
    version=150004,
    version_text="15.4",
    clock=NOW,
    clock_before=NOW,
    clock_after=NOW,
    settings={name: Setting(value=value, source="default") for name, value in SETTINGS.items()},
    connections=5,
    sees_all_sessions=True,
    transactions=(),
    prepared=(),
    slots=(),
    standbys=(),
    xid_age=1_000,
    xid_database="log",
    has_outbox=True,
    outbox=(),
    schema=SchemaFacts(migration=22, installation="i", cell=0, level=3, cells={"eu": 1}, older_servers={}),
    client_options="--host=db",
)
EXPECTED = Expectations(lock_slots=1024, connections=6, transaction_seconds=60, migration=22, level=3, options=" -x")
OPEN = OpenTransaction(pid=7, user="u", application="", address="", state="active", seconds=59)


def finding(facts: DatabaseFacts, check: str) -> Finding:
    [found] = [each for each in check_database(facts, EXPECTED, "catalog") if each.check == check]
    assert found.where == "catalog"
    assert (found.remedy == ()) == (found.status is FindingStatus.OK) or found.status is FindingStatus.SKIPPED
    return found


def with_setting(name: str, value: str, source: str = "configuration file") -> DatabaseFacts:
    return replace(HEALTHY, settings={**HEALTHY.settings, name: Setting(value=value, source=source)})


def test_a_healthy_database_lacks_only_a_standby() -> None:
    found = {each.check: each.status for each in check_database(HEALTHY, EXPECTED, "catalog")}
    assert {check for check, status in found.items() if status is not FindingStatus.OK} == {"standby"}
    assert worst(check_database(HEALTHY, EXPECTED, "catalog")) is FindingStatus.WARNING
    assert worst([]) is FindingStatus.OK


@pytest.mark.parametrize(
    ("milliseconds", "status"), [(999, "ok"), (1_000, "warning"), (-1_000, "warning"), (60_000, "failed")]
)
def test_clock(milliseconds: int, status: str) -> None:
    moved = replace(HEALTHY, clock=NOW + timedelta(milliseconds=milliseconds))
    found = finding(moved, "clock")
    assert found.status == status
    assert status == "ok" or ("ahead of" if milliseconds > 0 else "behind") in found.measured


def test_a_slow_answer_is_no_wrong_clock() -> None:
    slow = replace(HEALTHY, clock_after=NOW + timedelta(seconds=9), clock=NOW + timedelta(seconds=8))
    assert finding(slow, "clock").status == "ok"


@pytest.mark.parametrize(
    ("age", "status"), [(999_999_999, "ok"), (1_000_000_000, "warning"), (1_800_000_000, "failed")]
)
def test_transaction_ids(age: int, status: str) -> None:
    assert finding(replace(HEALTHY, xid_age=age), "transaction ids").status == status


@pytest.mark.parametrize("check", ["open transactions", "outbox transactions"])
def test_only_old_transactions_are_reported(check: str) -> None:
    facts = replace(HEALTHY, transactions=(OPEN,), outbox=(OPEN,))
    assert finding(facts, check).status == "ok"
    old = replace(OPEN, seconds=600)
    found = finding(replace(facts, transactions=(old,), outbox=(old,)), check)
    assert (found.status, found.measured) == ("warning", "1 open, the oldest: pid 7, user u, active, for 10 min")
    assert found.remedy[-1].text == "SELECT pg_terminate_backend(7);"


@pytest.mark.parametrize(
    ("is_active", "held", "status"),
    [(True, 0, "ok"), (True, 11 << 30, "warning"), (False, 0, "warning")],
)
def test_slots(is_active: bool, held: int, status: str) -> None:
    slot = ReplicationSlot(name="s", is_active=is_active, holds_rows=False, held_bytes=held, status="reserved")
    assert finding(replace(HEALTHY, slots=(slot,)), "replication slots").status == status


@pytest.mark.parametrize(
    ("names", "sync_state", "lag", "status", "said"),
    [
        ("*", "sync", 0, "ok", "synchronous: s"),
        ("*", "sync", 300 << 20, "warning", "s lags by 300 MiB"),
        ("*", "async", 0, "failed", "commits wait"),
        ("", "async", 0, "warning", "no standby is synchronous"),
    ],
)
def test_standby(names: str, sync_state: str, lag: int, status: str, said: str) -> None:
    standby = Standby(name="s", state="streaming", sync_state=sync_state, lag_bytes=lag)
    facts = replace(with_setting("synchronous_standby_names", names), standbys=(standby,))
    found = finding(facts, "standby")
    assert (found.status, said in found.measured) == (status, True)


def test_an_old_postgresql() -> None:
    found = finding(replace(HEALTHY, version=140009, version_text="14.9"), "postgresql")
    assert (found.status, found.remedy[0].text) == ("failed", "Upgrade PostgreSQL to 15 or later.")


def test_a_setting_of_the_command_line_is_changed_there() -> None:
    found = finding(with_setting("fsync", "off", "command line"), "durability")
    assert [step.text for step in found.remedy] == ["Start PostgreSQL with fsync=on on its command line."]


def test_schema_and_level_of_another_version() -> None:
    assert HEALTHY.schema is not None
    newer = replace(HEALTHY, schema=replace(HEALTHY.schema, migration=23, level=4))
    assert finding(newer, "schema").status == "warning"
    assert finding(newer, "feature level").status == "failed"
    missing = replace(HEALTHY, schema=None)
    assert finding(missing, "schema").remedy[0].text == "lakelog migrate -x"
    assert finding(missing, "feature level").status == "skipped"


def test_cells() -> None:
    assert HEALTHY.schema is not None
    cell = replace(HEALTHY, schema=replace(HEALTHY.schema, cell=1, cells={}))
    assert check_cells({"": HEALTHY, "eu": cell}, {"eu": "url"}, "").status == "ok"
    assert check_cells({"": HEALTHY}, {"eu": "url"}, "").status == "ok"
    assert check_cells({"eu": cell}, {"eu": "url"}, "").status == "skipped"


def test_the_object_store() -> None:
    assert check_object_store(None, None).status == "skipped"
    assert check_object_store("s3://b/p", None).status == "ok"
    refused = check_object_store("s3://b/p", "denied")
    assert (refused.status, refused.measured) == ("failed", "denied") and "credentials" in refused.remedy[0].text


def test_a_server() -> None:
    statuses = [each.status.value for each in check_server("ready", True, (), ("1", "1"))]
    assert statuses == ["ok", "ok", "ok", "skipped"]
    statuses = [each.status.value for each in check_server("unavailable", False, ("w",), ("1", "2"))]
    assert statuses == ["failed", "failed", "warning", "skipped"]
    assert check_server("ready", True, ("w",), ("1", "1"))[1].status == "warning"
