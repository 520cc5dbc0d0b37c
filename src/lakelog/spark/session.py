"""How a Spark job reaches Lakelog: where the server is, and one client per process.

Spark pickles what it sends to executors, so a `ConnectionSettings` is plain data. The client is opened in
the process that uses it, and kept there for the tasks to come.
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
from lakelog.errors import InvalidRequest, LakelogError

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
    """Where the topics are, and the token that opens them."""

    url: str
    token: str | None = None

    def __repr__(self) -> str:
        # Spark prints what it sends to tasks: the token, or a password in the URL, must not be in it.
        return "Connection(…)"

    @property
    def place(self) -> str:
        """The server or database, without a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def options(self) -> dict[str, str]:
        """For `format("lakelog")`, which reads them again by `connection_of`."""
        return {"url": self.url, "token": self.token} if self.token else {"url": self.url}


def connection_of(options: Mapping[str, str]) -> ConnectionSettings:
    """Return the connection of the options `url` and `token`, else of the environment, or `.lakelog/env`."""
    return connection_to(options.get("url"), options.get("token"))


def connection_to(url: str | None, token: str | None, spark: SparkSession | None = None) -> ConnectionSettings:
    """Return the connection: what is given, else the session's configuration, the environment, or `.lakelog/env`."""
    try:
        found = find_target(url or _configured(spark, URL_CONF), token or _configured(spark, TOKEN_CONF) or None)
    except InvalidRequest:
        raise InvalidRequest(
            "No server is configured. Use configure(SparkSession.builder, url='http://host:8080') or .option('url', …),"
            " set LAKELOG_URL in the environment of the driver, or start `lakelog dev` in the driver's folder."
        ) from None
    return ConnectionSettings(url=found.url, token=found.token)


def client(connection: ConnectionSettings) -> Lakelog:
    """The client of this process for that connection."""
    # A worker of Spark may be a fork of one that has a client already.
    place = (os.getpid(), connection)
    if place not in _clients:
        _clients[place] = lakelog.connect(connection.url, token=connection.token)
    return _clients[place]


def require_topic(connection: ConnectionSettings, topic: str) -> None:
    """Raise `TopicNotFound` if the topic does not exist."""
    with announced(connection):
        client(connection).topic(topic).describe()


@contextmanager
def announced(connection: ConnectionSettings) -> Iterator[None]:
    """Log a warning if the block takes long, because the server accepts connections and does not answer.

    The client itself logs a server that it cannot reach. Warnings of a Python worker of Spark are shown by the driver.
    """
    why = ("Waiting for %s, which has not answered for %.0f s.", connection.place, PATIENCE_SECONDS)
    timer = threading.Timer(PATIENCE_SECONDS, _log.warning, why)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def short_errors() -> Iterator[None]:
    """Make Spark show an error of Lakelog by its message alone, without the traceback of the Python worker.

    The variable is Spark's own. A worker exits after the error, so nothing else is affected.
    """
    try:
        yield
    except LakelogError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def store_options(spark: SparkSession) -> dict[str, str]:
    """What the session knows about S3, in the object store's words; the rest is in the environment (AWS_…)."""
    found = {}
    for theirs, ours in _STORE_OPTIONS.items():
        text = _configured(spark, _S3A + theirs)
        if text:
            found[ours] = text
    if found.get("endpoint", "").startswith("http://"):
        found["allow_http"] = "true"
    return found


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, as far as is known."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:
        # A client of Spark Connect has no context, and a guess does.
        return 4


def _configured(spark: SparkSession | None, name: str) -> str | None:
    if spark is None:
        return None
    found = spark.conf.get(name, None)
    return found or None
