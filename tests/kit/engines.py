"""Engines that read topics as Iceberg tables, through the catalog of a server: PyIceberg and DuckDB.

Each is set up as its users do it. They share no code with Lakelog.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
from pyiceberg.catalog.rest import RestCatalog

from tests.kit.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server

NAMESPACE = "default.default"


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


def digest(rows: list[tuple[Any, ...]]) -> tuple[int, str]:
    """Return the number of rows and a hash of them, in order."""
    found = hashlib.sha256()
    for row in sorted(rows):
        found.update(repr(row).encode())
    return len(rows), found.hexdigest()
