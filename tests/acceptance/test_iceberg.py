"""Topics as Iceberg tables, through a real server and S3: other engines read what the log has, and nothing is swept."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError, UnauthorizedError

import lakelog
from lakelog.errors import Conflict
from lakelog.model.iceberg import TableKind
from lakelog.objectstore import open_store
from lakelog.segments.iceberg.key_files import Covered, KeyFile, KeyTable
from lakelog.segments.iceberg.table_files import TableFiles
from lakelog.segments.layout import key_path
from lakelog.segments.schema import SCHEMA
from lakelog.spark.pipelines.iceberg import IcebergJob, IcebergSummary, run_iceberg
from lakelog.spark.pipelines.sweeping import sweep
from tests.acceptance.cli_kit import Cli
from tests.kit.cold import tier_by_hand
from tests.kit.engines import NAMESPACE, attach, digest, duckdb_with_iceberg, pyiceberg_catalog
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.s3 import S3Server
from tests.kit.size import Size
from tests.unit.docs.markdown import DOCS, blocks

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.catalog.rest import RestCatalog

pytestmark = pytest.mark.timeout(300)

SMALL = 20_000
"""Bytes of a segment: a few hundred messages."""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as started, pytest.MonkeyPatch.context() as patch:
        for name, text in started.env.items():
            patch.setenv(name, text)
        yield started


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, s3: S3Server) -> Iterator[Fleet]:
    with Fleet(cluster, servers=1, authenticate=True, env={"LAKELOG_OBJECT_STORE": s3.url, **s3.env}) as started:
        yield started


@pytest.fixture
def log(fleet: Fleet) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(url_of(fleet), token=fleet.token) as opened:
        yield opened
        for topic in opened.topics():
            opened.topic(topic.name).delete()


@pytest.fixture
def catalog(fleet: Fleet, s3: S3Server) -> RestCatalog:
    return pyiceberg_catalog(url_of(fleet), fleet.token, s3)


@pytest.fixture(scope="module")
def duck(fleet: Fleet, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb_with_iceberg(tmp_path_factory.mktemp("extensions"))
    assert fleet.token is not None
    attach(connection, url_of(fleet), fleet.token, s3)
    yield connection
    connection.close()


def url_of(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet.ports[0]}"


def publish(log: lakelog.Lakelog, topic: str, count: int, start: int = 0) -> None:
    handle = log.topic(topic)
    handle.create(partitions=2, if_missing=True)
    numbers = range(start, start + count)
    handle.publish_many([lakelog.Outgoing({"n": n}, key=f"k{n % 7}", headers={"n": str(n)}) for n in numbers])


def project(log: lakelog.Lakelog, *topics: str) -> list[IcebergSummary]:
    return run_iceberg(log, IcebergJob(topics=topics), lambda done: None, lambda topic, error: None)


def of_log(log: lakelog.Lakelog, topic: str) -> tuple[int, str]:
    """Return the messages of the log that the table covers, as a digest."""
    rows = []
    for each in log.lake.plan(topic).partitions:
        for segment in [*each.segments, *each.later]:
            for batch in log.lake.read_range(topic, each.partition, segment.first, segment.end):
                columns = [batch.column(name).to_pylist() for name in ("partition", "offset", "key", "value")]
                rows += list(zip(*columns, strict=True))
    return digest(rows)


def of_pyiceberg(catalog: RestCatalog, topic: str) -> tuple[int, str]:
    found = catalog.load_table((NAMESPACE, topic)).scan(selected_fields=("partition", "offset", "key", "value"))
    table = found.to_arrow()
    return digest(list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def of_duckdb(duck: duckdb.DuckDBPyConnection, topic: str) -> tuple[int, str]:
    rows = duck.execute(f'SELECT partition, "offset", key, value FROM lake."{NAMESPACE}".{topic}').fetchall()
    return digest(rows)


def test_engines_read_the_same_messages_as_the_log(
    log: lakelog.Lakelog, catalog: RestCatalog, duck: duckdb.DuckDBPyConnection
) -> None:
    publish(log, "orders", 1_000)
    tier_by_hand(log, "orders", segment_bytes=SMALL)
    publish(log, "orders", 10, start=1_000)
    (done,) = project(log, "orders")
    assert (done.messages, done.version) == (1_000, 1)
    expected = of_log(log, "orders")
    assert expected[0] == 1_000, "newer messages are not in files yet"
    assert of_pyiceberg(catalog, "orders") == expected
    assert of_duckdb(duck, "orders") == expected
    (again,) = project(log, "orders")
    assert (again.commits, again.version) == (0, 1)
    pruned = duck.execute(
        f"SELECT count(*) FROM lake.\"{NAMESPACE}\".orders WHERE partition = 1 AND appended_at < '2020-01-01'"
    ).fetchall()
    assert pruned == [(0,)]


def test_engines_read_the_typed_columns_of_a_topic(
    log: lakelog.Lakelog, catalog: RestCatalog, duck: duckdb.DuckDBPyConnection
) -> None:
    """Files without columns, and with two versions of them, are one table with the newest columns."""
    handle = log.topic("sales")
    handle.create(1)
    at = {"type": "string", "format": "date-time"}
    items = {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}}
    counts = {"type": "object", "additionalProperties": {"type": "integer"}}
    versions = [
        None,
        {"n": {"type": "integer", "format": "int32"}, "at": at, "day": {"type": "string", "format": "date"}},
        {"n": {"type": "integer"}, "items": items, "counts": counts, "paid": {"type": "boolean"}},
    ]
    value = {"at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "items": [{"sku": "a"}], "counts": {"b": 2}}
    for number, properties in enumerate(versions):
        if properties is not None:
            handle.alter(columns={"properties": properties})
        handle.publish_many([value | {"n": 10 * number + n, "paid": True} for n in range(3)])
        handle.publish(b"{")
        tier_by_hand(log, "sales")
        project(log, "sales")
    table = catalog.load_table((NAMESPACE, "sales"))
    fields = {each.name: each.field_id for each in table.schema().find_field("v").field_type.fields}  # type: ignore[union-attr]
    assert fields == {"n": 2000, "at": 2001, "day": 2002, "items": 2003, "counts": 2006, "paid": 2009}
    found = table.scan(selected_fields=("offset", "v", "v_error")).to_arrow().sort_by("offset")
    rows = [row and row["n"] for row in found.column("v").to_pylist()]
    assert rows == [None] * 4 + [10, 11, 12, None] + [20, 21, 22, None]
    last = found.column("v")[8].as_py()
    assert (last["at"].year, last["day"].day, last["items"], last["paid"]) == (2026, 31, [{"sku": "a"}], True)
    assert dict(last["counts"]) == {"b": 2}
    errors = [bool(error) for error in found.column("v_error").to_pylist()]
    assert errors == [False] * 7 + [True] + [False] * 3 + [True]
    sums = duck.execute(
        "SELECT sum(v.n), count(v), max(v.items[1].sku), max(v.counts['b']), count(v_error), max(v.day)::VARCHAR, "
        f'max(v.at)::VARCHAR FROM lake."{NAMESPACE}".sales'
    ).fetchall()
    assert [row[:6] for row in sums] == [(96, 6, "a", 2, 2, "2026-01-31")]
    assert table.scan(row_filter="v.n > 20", selected_fields=("offset",)).to_arrow().num_rows == 2
    assert [done.commits for done in project(log, "sales")] == [0]
    handle.alter(columns={"properties": {"later": {"type": "string"}}})
    assert [(done.commits, done.added) for done in project(log, "sales")] == [(1, 0)]
    assert catalog.load_table((NAMESPACE, "sales")).schema().find_field("v.later").field_id == 2010
    assert table.scan(selected_fields=("offset",)).to_arrow().num_rows == 12, "also a reader of an earlier version"


def test_the_catalog_lists_the_tables_of_the_environment_and_no_others(
    fleet: Fleet, log: lakelog.Lakelog, catalog: RestCatalog
) -> None:
    publish(log, "orders", 10)
    publish(log, "clicks", 10)
    tier_by_hand(log, "orders")
    project(log)
    assert catalog.list_namespaces() == [(NAMESPACE,)]
    assert catalog.namespace_exists(NAMESPACE) and not catalog.namespace_exists(("other", "default"))
    assert catalog.list_tables((NAMESPACE,)) == [(NAMESPACE, "orders")]
    assert catalog.list_tables(NAMESPACE) == [("default", "default", "orders")], "PyIceberg splits at dots"
    assert catalog.table_exists((NAMESPACE, "orders"))
    assert not catalog.table_exists((NAMESPACE, "clicks"))
    by_levels = catalog.load_table("default.default.orders")
    assert by_levels.scan().to_arrow().num_rows == 10
    with pytest.raises(NoSuchTableError, match=r"has no Iceberg table. Create it with `lakelog pipelines run iceberg"):
        catalog.load_table((NAMESPACE, "clicks"))
    with pytest.raises(UnauthorizedError):
        pyiceberg_catalog(url_of(fleet), "wrong")


def test_engines_read_a_key_table_beside_the_table_of_messages(
    log: lakelog.Lakelog, catalog: RestCatalog, duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    publish(log, "orders", 10)
    tier_by_hand(log, "orders")
    project(log, "orders")
    with pytest.raises(NoSuchTableError, match="pipelines run latest orders"):
        catalog.load_table((NAMESPACE, "orders__latest"))
    changes = log.lake.iceberg_changes("orders", TableKind.LATEST)
    assert (changes.version, changes.steps) == (0, [])
    store = open_store(changes.store or "")
    rows = [{"key": f"k{n}".encode(), "value": str(n).encode(), "offset": n} for n in range(7)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "keys", store_schema=False)
    path = key_path(changes.environment_id, changes.incarnation, 0)
    made = KeyFile(path=path, rows=7, bytes=(tmp_path / "keys").stat().st_size)
    store.put(made.path, tmp_path / "keys")
    covered = Covered(ends={0: 4, 1: 6}, epoch=0, as_of=changes.now)
    commit = KeyTable(store, changes, 1).next_version([made], {0}, covered)
    assert log.lake.commit_iceberg(commit).name == "orders__latest"
    assert catalog.list_tables((NAMESPACE,)) == [(NAMESPACE, "orders"), (NAMESPACE, "orders__latest")]
    found = catalog.load_table((NAMESPACE, "orders__latest")).scan(row_filter="offset > 4").to_arrow()
    assert found.column("key").to_pylist() == [b"k5", b"k6"]
    keys = duck.execute(f'SELECT decode(key), decode(value) FROM lake."{NAMESPACE}".orders__latest').fetchall()
    assert sorted(keys) == [(f"k{n}", str(n)) for n in range(7)]
    assert of_duckdb(duck, "orders")[0] == 10


def test_a_token_sees_the_tables_of_its_own_environment_only(fleet: Fleet, log: lakelog.Lakelog) -> None:
    publish(log, "orders", 10)
    tier_by_hand(log, "orders")
    project(log, "orders")
    other = log.tokens.create("publisher", rights=["publish"])
    status, _ = request(fleet, "GET", "/iceberg/v1/config", other.secret)
    assert status == 403
    assert fleet.token is not None
    for namespace in ("other.default", "default.other", "default%1Fother", "default"):
        status, body = request(fleet, "GET", f"/iceberg/v1/namespaces/{namespace}/tables", fleet.token)
        assert (status, body["error"]["code"]) == (404, 404)
        assert NAMESPACE in body["error"]["message"]


def test_writes_of_other_programs_are_refused_with_the_reason(
    fleet: Fleet, log: lakelog.Lakelog, catalog: RestCatalog
) -> None:
    publish(log, "orders", 10)
    tier_by_hand(log, "orders")
    project(log, "orders")
    table = catalog.load_table((NAMESPACE, "orders"))
    with pytest.raises(NotImplementedError), table.transaction() as transaction:
        transaction.set_properties(owner="somebody")
    assert fleet.token is not None
    status, body = request(fleet, "POST", f"/iceberg/v1/namespaces/{NAMESPACE}/tables/orders", fleet.token)
    assert status == 405
    assert body["error"]["type"] == "UnsupportedOperationException"
    assert "`lakelog pipelines run iceberg`" in body["error"]["message"]
    assert catalog.load_table((NAMESPACE, "orders")).scan().to_arrow().num_rows == 10


def test_two_committers_one_wins_and_nothing_is_lost(log: lakelog.Lakelog, s3: S3Server, catalog: RestCatalog) -> None:
    store = open_store(s3.url)
    publish(log, "orders", 100)
    tier_by_hand(log, "orders")
    one = TableFiles(store, log.lake.iceberg_changes("orders")).write()
    other = TableFiles(store, log.lake.iceberg_changes("orders")).write()
    assert one is not None and other is not None
    assert log.lake.commit_iceberg(other).version == 1
    with pytest.raises(Conflict, match="changed by another run"):
        log.lake.commit_iceberg(one)
    errors: list[Exception] = []

    def run() -> None:
        try:
            run_iceberg(log, IcebergJob(topics=("orders",)), lambda done: None, lambda topic, error: None)
        except Exception as error:
            errors.append(error)

    for start in range(100, 500, 100):
        publish(log, "orders", 100, start)
        tier_by_hand(log, "orders")
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(type(error).__name__ == "PipelineBusy" for error in errors), errors
    project(log, "orders")
    assert of_pyiceberg(catalog, "orders") == of_log(log, "orders")
    assert of_log(log, "orders")[0] == 500


def test_engines_read_whole_tables_while_tiering_continues(
    log: lakelog.Lakelog, catalog: RestCatalog, duck: duckdb.DuckDBPyConnection, size: Size
) -> None:
    publish(log, "orders", 100)
    tier_by_hand(log, "orders")
    project(log, "orders")
    over = threading.Event()
    failed: list[BaseException] = []

    def grow() -> None:
        try:
            start = 100
            while not over.is_set():
                publish(log, "orders", 100, start)
                tier_by_hand(log, "orders")
                project(log, "orders")
                start += 100
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=grow)
    thread.start()
    counts: list[int] = []
    for _ in range(100 if size is Size.FULL else 5):
        table = catalog.load_table((NAMESPACE, "orders"))
        snapshot = table.current_snapshot()
        assert snapshot is not None and snapshot.summary is not None
        covered = json.loads(snapshot.summary.additional_properties["lakelog.covered"])
        rows = table.scan(selected_fields=("partition", "offset")).to_arrow().to_pylist()
        expected = {
            (int(partition), offset)
            for partition, ranges in covered.items()
            for first, end in ranges
            for offset in range(first, end)
        }
        assert {(row["partition"], row["offset"]) for row in rows} == expected
        assert len(rows) == len(expected)
        (found,) = duck.execute(f'SELECT count(*) FROM lake."{NAMESPACE}".orders').fetchall()
        assert found[0] % 100 == 0, "a table has whole commits"
        counts += [len(rows), found[0]]
    over.set()
    thread.join()
    assert not failed
    assert counts == sorted(counts), "an engine never reads an older table than another did before"
    assert of_duckdb(duck, "orders") == of_pyiceberg(catalog, "orders") == of_log(log, "orders")


def test_a_sweep_spares_every_file_of_a_snapshot_and_deletes_the_files_of_lost_attempts(
    log: lakelog.Lakelog, s3: S3Server, fleet: Fleet, catalog: RestCatalog
) -> None:
    store = open_store(s3.url)
    publish(log, "orders", 100)
    tier_by_hand(log, "orders")
    lost = TableFiles(store, log.lake.iceberg_changes("orders")).write()
    assert lost is not None
    project(log, "orders")
    log.topic("orders").purge()
    assert log.lake.plan("orders").partitions[0].segments == (), "no segment counts any more"
    for _ in range(2):
        swept = sweep(min_age=timedelta(0), url=url_of(fleet), token=fleet.token)
    left = {each.path for each in store.list("e1")} | {each.path for each in store.list()}
    assert not {path for path in lost.added if path.endswith((".avro", ".json"))} & left
    assert swept.files
    before = catalog.load_table((NAMESPACE, "orders"))
    assert before.scan().to_arrow().num_rows == 100, "the table still has what it had"
    (done,) = project(log, "orders")
    assert (done.added, done.removed) == (0, 2)
    now = catalog.load_table((NAMESPACE, "orders"))
    assert now.scan().to_arrow().num_rows == 0
    sweep(min_age=timedelta(0), url=url_of(fleet), token=fleet.token)
    sweep(min_age=timedelta(0), url=url_of(fleet), token=fleet.token)
    assert now.scan(snapshot_id=1).to_arrow().num_rows == 100, "an older snapshot has not expired"


def test_the_command_says_what_it_did(log: lakelog.Lakelog, fleet: Fleet, tmp_path: Path) -> None:
    assert fleet.token is not None
    cli = Cli(folder=tmp_path, env={"LAKELOG_URL": url_of(fleet), "LAKELOG_TOKEN": fleet.token})
    assert "There are no topics." in cli.run("pipelines", "run", "iceberg").err
    publish(log, "orders", 100)
    nothing = cli.run("pipelines", "run", "iceberg").out
    assert nothing == "orders: the table was not created: the topic has no verified segments\n"
    tier_by_hand(log, "orders")
    plan = cli.run("pipelines", "run", "iceberg", "orders", "--dry-run").out
    assert plan == "orders: 2 segments with 100 messages would be added; version 0\n"
    done = cli.run("pipelines", "run", "iceberg", "orders", "--json").json
    assert done == {
        "topic": "orders",
        "dry_run": False,
        "version": 1,
        "added": 2,
        "removed": 0,
        "messages": 100,
        "commits": 1,
    }
    assert cli.run("pipelines", "run", "iceberg").out == "orders: the table has all verified segments\n"
    assert "iceberg" in cli.run("pipelines", "runs").out
    missing = cli.run("pipelines", "run", "iceberg", "nothing", code=None)
    assert missing.code != 0 and "nothing" in missing.err


def test_the_page_runs_as_it_is_written(log: lakelog.Lakelog, fleet: Fleet, s3: S3Server, tmp_path: Path) -> None:
    publish(log, "orders", 100)
    log.topic("orders").alter(columns={"properties": {"n": {"type": "integer"}}})
    tier_by_hand(log, "orders")
    project(log, "orders")
    duckdb_with_iceberg(tmp_path).close()
    page = (DOCS / "howto" / "query-a-topic.md").read_text()
    program = "\n".join(text for kind, text in blocks(page) if kind == "python")
    expected = "".join(text for kind, text in blocks(page) if kind == "text")
    assert fleet.token is not None
    env = {**os.environ, **s3.env, "HOME": str(tmp_path), "LAKELOG_URL": url_of(fleet), "LAKELOG_TOKEN": fleet.token}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def request(fleet: Fleet, method: str, path: str, token: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", fleet.ports[0], timeout=30)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
