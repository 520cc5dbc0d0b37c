"""The builder that `configure` returns. Its sessions know the server wherever a topic is read or written.

The environment of the driver does not reach the processes that plan reads if the JVM is older than the driver's
Python. A session therefore registers the data source together with its connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from lakelog.errors import InvalidRequest
from lakelog.spark.session import URL_CONF, ConnectionSettings, connection_to
from lakelog.spark.source import source_with

_registered: WeakKeyDictionary[SparkSession, ConnectionSettings] = WeakKeyDictionary()


class SessionBuilder(SparkSession.Builder):
    """A builder with the options of another, whose sessions connect `format("lakelog")` to the server."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self._options = dict(options)

    def getOrCreate(self) -> SparkSession:
        return register(super().getOrCreate())

    def create(self) -> SparkSession:
        return register(super().create())


def register(spark: SparkSession) -> SparkSession:
    """Register the data source with the server of the session's configuration or the driver's environment.

    Return the session. Without a server, do nothing: a read or write names the server, or reports that there is none.
    """
    try:
        connection = connection_to(None, None, spark)
    except InvalidRequest:
        if spark.conf.get(URL_CONF, None):
            raise
        return spark
    # Spark logs a warning when a data source replaces another.
    if _registered.get(spark) != connection:
        spark.dataSource.register(source_with(connection.options))
        _registered[spark] = connection
    return spark
