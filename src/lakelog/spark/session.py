"""How a Spark job reaches Lakelog: where the server is, and one client per process.

Spark pickles what it sends to executors, so a `Connection` is plain data; the client that it stands for is opened in
the process that uses it, and kept there for the tasks to come.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lakelog
from lakelog.errors import InvalidRequest

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
_clients: dict[tuple[int, Connection], Lakelog] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the topics are, and the token that opens them."""

    url: str
    token: str | None = None

    def __repr__(self) -> str:
        # Spark prints what it sends to tasks: the token, or a password in the URL, must not be in it.
        return "Connection(…)"

    @property
    def options(self) -> dict[str, str]:
        """For `format("lakelog")`, which reads them again by `connection_of`."""
        return {"url": self.url, "token": self.token} if self.token else {"url": self.url}


def connection_of(options: Mapping[str, str]) -> Connection:
    """By the options `url` and `token`, else the environment."""
    return connection_to(options.get("url"), options.get("token"))


def connection_to(url: str | None, token: str | None, spark: SparkSession | None = None) -> Connection:
    """By what is given, else the session's configuration, else the environment."""
    url = url or _configured(spark, URL_CONF) or os.environ.get("LAKELOG_URL")
    if not url:
        raise InvalidRequest(
            "Say where the topics are: configure(SparkSession.builder, url='http://host:8080'), or .option('url', …), "
            "or LAKELOG_URL in the environment of the driver."
        )
    token = token or _configured(spark, TOKEN_CONF) or os.environ.get("LAKELOG_TOKEN")
    return Connection(url=url, token=token)


def client(connection: Connection) -> Lakelog:
    """The client of this process for that connection."""
    # A worker of Spark may be a fork of one that has a client already.
    place = (os.getpid(), connection)
    if place not in _clients:
        _clients[place] = lakelog.connect(connection.url, token=connection.token)
    return _clients[place]


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
