"""Connections of a Spark job to Lakelog: the address of the server, and one client per process.

A process that plans a read inherits the environment of the JVM, which started before the driver's Python under
spark-submit and in notebooks. The connection therefore travels in options, or in the data source of the session.

Spark pickles what it sends to executors, so `ConnectionSettings` is plain data. Each process opens its own client and
keeps it for later tasks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import lakelog
from lakelog.client.connecting.target import find_target
from lakelog.client.connecting.trust import NO_FILES, TlsFiles
from lakelog.errors import ConfigurationError, InvalidRequest, LakelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog import Lakelog

URL_CONF, TOKEN_CONF = "spark.lakelog.url", "spark.lakelog.token"
_S3A = "spark.hadoop.fs.s3a."
_STORE_OPTIONS = {
    "endpoint": "endpoint",
    "endpoint.region": "region",
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "token",
}
PATIENCE_SECONDS = 2.0
_log = logging.getLogger(__name__)
_clients: dict[tuple[int, ConnectionSettings], Lakelog] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The address of the server, the token, and the files for TLS, which must exist on all machines."""

    url: str
    token: str | None = None
    tls_files: TlsFiles = NO_FILES

    def __repr__(self) -> str:
        # Spark prints what it sends to tasks, so the text must not contain the token or a password.
        return "Connection(…)"

    @property
    def place(self) -> str:
        """The URL of the server or database, without a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def options(self) -> dict[str, str]:
        """The options of `format("lakelog")` for this connection, which `connection_of` reads."""
        return {"url": self.url, "token": self.token} if self.token else {"url": self.url}


def connection_of(options: Mapping[str, str]) -> ConnectionSettings:
    """Return the connection from the options `url` and `token`, the environment, or `.lakelog/env`."""
    return connection_to(options.get("url"), options.get("token"))


def connection_to(url: str | None, token: str | None, spark: SparkSession | None = None) -> ConnectionSettings:
    """Return the connection from the arguments, the session's configuration, the environment, or `.lakelog/env`."""
    server = url or require_no_password(_configured(spark, URL_CONF))
    try:
        found = find_target(server, token or _configured(spark, TOKEN_CONF))
    except InvalidRequest:
        raise InvalidRequest(
            "No server is configured. Use configure(SparkSession.builder, url='http://host:8080') or .option('url', …),"
            " set LAKELOG_URL in the environment of the driver, or start `lakelog dev` in the driver's folder."
        ) from None
    return ConnectionSettings(url=found.url, token=found.token, tls_files=found.tls_files)


def require_no_password(url: str | None) -> str | None:
    """Return the URL of a session's configuration. Refuse a URL with a password, which Spark's UI would show."""
    if url is not None and urlsplit(url).password is not None:
        raise InvalidRequest(
            f"The URL in {URL_CONF} contains a password, and Spark shows this setting in its UI and logs. Remove the "
            "password from the URL, and set PGPASSWORD in the environment of driver and executors or use a file "
            "~/.pgpass. The option `url` of a read, stream or write may contain a password, because Spark redacts it."
        )
    return url


def client(connection: ConnectionSettings) -> Lakelog:
    """Return this process's client for the connection."""
    # A Python worker of Spark may be a fork of a process that already has a client.
    place = (os.getpid(), connection)
    if place not in _clients:
        files = connection.tls_files
        _clients[place] = lakelog.connect(
            connection.url,
            token=connection.token,
            ca_file=files.ca,
            client_certificate=files.certificate,
            client_key=files.key,
        )
    return _clients[place]


def require_topic(connection: ConnectionSettings, topic: str) -> None:
    """Raise `TopicNotFound` if the topic does not exist."""
    with announced(connection):
        client(connection).topic(topic).describe()


@contextmanager
def announced(connection: ConnectionSettings) -> Iterator[None]:
    """Log a warning if the block takes long because the server accepts connections but does not respond.

    The client itself logs an unreachable server. The driver shows the warnings of Spark's Python workers.
    """
    why = ("Waiting for %s, which has not responded for %.0f s.", connection.place, PATIENCE_SECONDS)
    timer = threading.Timer(PATIENCE_SECONDS, _log.warning, why)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def short_errors() -> Iterator[None]:
    """Make Spark show an error of Lakelog by its message only, without the traceback of the Python worker.

    The variable belongs to Spark. A worker exits after the error, so nothing else is affected.
    """
    try:
        yield
    except LakelogError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def store_options(spark: SparkSession) -> dict[str, str]:
    """Return the session's S3 settings under the names of the object store.

    Other settings come from the environment (AWS_…).
    """
    found = {}
    for theirs, ours in _STORE_OPTIONS.items():
        text = _configured(spark, _S3A + theirs)
        if text:
            found[ours] = text
    if found.get("endpoint", "").startswith("http://"):
        found["allow_http"] = "true"
    return found


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run at the same time, or an estimate."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:
        # A Spark Connect client has no context, so use an estimate.
        return 4


def check_no_speculation(spark: SparkSession) -> None:
    """Raise `ConfigurationError` if Spark may run two copies of a task at the same time."""
    if (_configured(spark, "spark.speculation") or "false").lower() == "true":
        raise ConfigurationError(
            "`spark.speculation` is on: Spark would run copies of slow tasks, and so a message twice at the same time. "
            "Start the session of `subscribe` with spark.speculation=false."
        )


def _configured(spark: SparkSession | None, name: str) -> str | None:
    if spark is None:
        return None
    found = spark.conf.get(name, None)
    return found or None
