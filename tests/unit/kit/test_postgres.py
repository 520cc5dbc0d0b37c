"""Clusters: durable settings, crash and recovery, pause, two at once."""

from __future__ import annotations

import psutil
import psycopg
import pytest

from tests.kit.postgres import Cluster


def test_shared_cluster_is_durable_and_gives_fresh_databases(cluster: Cluster, database: str) -> None:
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        assert cluster.execute(f"SHOW {setting}") == [("on",)]  # type: ignore[arg-type]
    assert cluster.execute("SHOW max_connections") == [("200",)]
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE t (n int)")
    copy = cluster.create_database(template=database.rpartition("/")[2])
    with psycopg.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    cluster.drop_database(copy)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(copy)


def test_two_clusters_have_their_own_identity(database: str, second_database: str) -> None:
    identities = set()
    for url in (database, second_database):
        with psycopg.connect(url) as connection:
            identities.add(connection.execute("SELECT system_identifier FROM pg_control_system()").fetchone())
    assert len(identities) == 2


def test_what_was_committed_survives_kill9_of_everything() -> None:
    with Cluster() as cluster:
        url = cluster.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (n int)")
            connection.execute("INSERT INTO t VALUES (42)")
            members = [cluster.process.pid, *(child.pid for child in cluster.process.children())]
            assert len(members) > 4
            cluster.kill9()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        assert not cluster.running
        assert not any(_runs(pid) for pid in members)
        cluster.restart()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT n FROM t").fetchone() == (42,)
        assert "was not properly shut down" in cluster.process.log_text()
        cluster.process.log_path.write_text("")
        cluster.restart()
        assert "was not properly shut down" not in cluster.process.log_text()
    assert not cluster.folder.exists()


def test_a_paused_cluster_answers_nobody_until_resumed() -> None:
    with Cluster() as cluster, psycopg.connect(cluster.url(), autocommit=True) as connection:
        cluster.pause()
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(cluster.url(), connect_timeout=1)
        cluster.ensure_running()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        cluster.stop()
        cluster.ensure_running()
        assert cluster.execute("SELECT 2") == [(2,)]


def test_settings_can_be_changed_at_a_restart() -> None:
    with Cluster(settings={"fsync": "off"}) as cluster:
        assert cluster.execute("SHOW fsync") == [("off",)]
        cluster.settings["fsync"] = "on"
        cluster.restart()
        assert cluster.execute("SHOW fsync") == [("on",)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
