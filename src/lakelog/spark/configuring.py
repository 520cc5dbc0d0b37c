"""`configure`: the settings of a session that were measured to matter for the latency of a micro-batch; no others.

A local file system of our own, in Java, would save the last processes that Hadoop starts without its native library, 4
of 20 in a micro-batch. It is left out: it would be a jar on every class path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelog.spark.session import TOKEN_CONF, URL_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    # Rows go from the JVM to Python and back many times in a micro-batch; without TCP that is quicker.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager asks for links, and where Hadoop has no native library each question is a process: 16 in a
    # micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def configure(
    builder: SparkSession.Builder, *, url: str | None = None, token: str | None = None
) -> SparkSession.Builder:
    """`configure(SparkSession.builder).getOrCreate()`. What is set on the builder afterwards wins.

    `url` and `token` are kept in the session's configuration, for `lakelog.spark.topic` and its neighbours, and in the
    environment, because `format("lakelog")` runs in a process that sees nothing else of the driver.
    """
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    for name, variable, given in ((URL_CONF, "LAKELOG_URL", url), (TOKEN_CONF, "LAKELOG_TOKEN", token)):
        if given is not None:
            os.environ[variable] = given
            builder = builder.config(name, given)
    return builder
