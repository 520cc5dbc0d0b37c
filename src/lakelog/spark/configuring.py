"""`configure`: checks what Spark requires, and applies settings that make a micro-batch faster.

Without its native library, Hadoop starts 20 processes in a micro-batch. The settings avoid 16 of them. Avoiding the
other 4 would need a jar on every class path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelog.spark.requirements import check_java, check_pyspark, starts_java
from lakelog.spark.session import TOKEN_CONF, URL_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    # Batches pass between the JVM and Python many times in a micro-batch, which is faster without TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager checks for links, and without Hadoop's native library each check starts a process: 16 in a
    # micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def configure(
    builder: SparkSession.Builder | None = None, *, url: str | None = None, token: str | None = None
) -> SparkSession.Builder:
    """Return a session builder with the settings for Lakelog: `configure().getOrCreate()`.

    Args:
        builder: The builder to configure, for example with a master or a name. Settings that you make on the result
            override those made here. Default: a new builder.
        url: The URL of the server for the whole session. Default: `LAKELOG_URL`, then the server of `lakelog dev` in
            this folder.
        token: The token for the whole session. Default: `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If PySpark is not installed, or if the session would start a Java that is missing or too
            old.
    """
    check_pyspark()
    if builder is None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
    made: Mapping[str, str] = getattr(builder, "_options", {})
    if starts_java(made):
        check_java()
        _use_this_python(made)
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    # `format("lakelog")` runs in a process that has the environment but not the session's configuration.
    for name, variable, given in ((URL_CONF, "LAKELOG_URL", url), (TOKEN_CONF, "LAKELOG_TOKEN", token)):
        if given is not None:
            os.environ[variable] = given
            builder = builder.config(name, given)
    return builder


def _use_this_python(settings: Mapping[str, str]) -> None:
    """Make local tasks run in this interpreter. Spark's default is `python3`, which may not have Lakelog installed."""
    if settings.get("spark.master", "local").startswith("local") and "spark.pyspark.python" not in settings:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
