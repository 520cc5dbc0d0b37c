"""Engines that read topics as Iceberg tables, through the catalog of a server: PyIceberg, DuckDB and Spark.

Each is set up as its users do it. They share no code with Lakelog.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from tests.kit.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server

NAMESPACE = "default.default"
SPARK = Path(__file__).parents[2] / ".parts" / "iceberg"
"""PySpark 4.1 with Iceberg's runtime: there is none for newer versions."""


def pyiceberg_catalog(server: str, token: str | None, s3: S3Server | None = None) -> RestCatalog:
    """Return PyIceberg's catalog. `server` is the URL of a server of Lakelog."""
    properties = {"uri": f"{server}/iceberg"}
    if token is not None:
        properties["token"] = token
    if s3 is not None:
        properties |= {
            "s3.endpoint": s3.endpoint,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": REGION,
        }
    return RestCatalog("lakelog", **properties)


def duckdb_with_iceberg(home: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection of DuckDB with the extensions that it needs, installed in the home folder of a user."""
    connection = duckdb.connect(config={"extension_directory": str(home / ".duckdb" / "extensions")})
    for name in ("httpfs", "avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=connection)
        connection.execute(f"LOAD {name}")
    return connection


def attach(connection: duckdb.DuckDBPyConnection, server: str, token: str, s3: S3Server | None = None) -> None:
    """Attach the catalog as `lake`."""
    connection.execute(f"CREATE OR REPLACE SECRET lakelog (TYPE iceberg, TOKEN '{token}')")
    if s3 is not None:
        connection.execute(
            f"CREATE OR REPLACE SECRET store (TYPE s3, KEY_ID '{ACCESS_KEY}', SECRET '{SECRET_KEY}', "
            f"REGION '{REGION}', ENDPOINT '{s3.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
        )
    connection.execute(
        f"ATTACH 'lakelog' AS lake (TYPE iceberg, ENDPOINT '{server}/iceberg', SECRET lakelog, "
        "ACCESS_DELEGATION_MODE 'none')"
    )


def has_spark() -> bool:
    """Return whether `scripts/install --part iceberg` was run."""
    return (SPARK / "venv" / ".installed").exists()


class IcebergSpark:
    """Spark with Iceberg's runtime, in a process of its own, because this environment has another version."""

    def __init__(self, query: str, folder: Path, server: str, token: str, s3: S3Server) -> None:
        """Start it. `query` has the catalog `lake`, and Arrow files of results are written to the folder."""
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": f"{server}/iceberg",
            ".token": token,
            ".cache-enabled": "false",
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".s3.endpoint": s3.endpoint,
            ".s3.path-style-access": "true",
            ".s3.access-key-id": ACCESS_KEY,
            ".s3.secret-access-key": SECRET_KEY,
            ".client.region": REGION,
        }
        conf = {
            "spark.jars": ",".join(map(str, SPARK.glob("*.jar"))),
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            **{f"spark.sql.catalog.lake{name}": setting for name, setting in settings.items()},
        }
        self._file = folder / "rows.arrow"
        program = str(Path(__file__).with_name("iceberg_spark.py"))
        argv = [str(SPARK / "venv" / "bin" / "python"), program, json.dumps(conf), query, str(self._file)]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": "", "PYSPARK_PYTHON": argv[0]}
        self._process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> pa.Table:
        """Run the query, and return its rows."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline(), "Spark ended"
        with pa.OSFile(str(self._file)) as file:
            return pa.ipc.open_file(file).read_all()

    def __enter__(self) -> IcebergSpark:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Its JVM ends with it.
        self._process.kill()
        self._process.communicate()


def digest(rows: list[tuple[Any, ...]]) -> tuple[int, str]:
    """Return the number of rows and a hash of them, in order."""
    found = hashlib.sha256()
    for row in sorted(rows):
        found.update(repr(row).encode())
    return len(rows), found.hexdigest()
