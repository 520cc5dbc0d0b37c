"""`configure`: checks what Spark needs, and makes the settings that were measured to matter for a micro-batch.

A local file system of our own, in Java, would save the last processes that Hadoop starts without its native library, 4
of 20 in a micro-batch. It is left out: it would be a jar on every class path.
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
    # Rows go from the JVM to Python and back many times in a micro-batch; without TCP that is quicker.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager asks for links, and where Hadoop has no native library each question is a process: 16 in a
    # micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def configure(
    builder: SparkSession.Builder | None = None, *, url: str | None = None, token: str | None = None
) -> SparkSession.Builder:
    """Return the builder of a session with the settings that suit Lakelog: `configure().getOrCreate()`.

    builder: the builder to configure, with a master, a name or settings of your own; by default a new one. Settings
        that are made on the result override those made here.
    url, token: the server and the token for the whole session. Default: `LAKELOG_URL` and `LAKELOG_TOKEN`, then the
        server of `lakelog dev` in this folder.

    Raises `ConfigurationError` if PySpark is not installed, or if the session would start a Java that is missing or
    too old.
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
    # `format("lakelog")` runs in a process that sees the environment, and not the session's configuration.
    for name, variable, given in ((URL_CONF, "LAKELOG_URL", url), (TOKEN_CONF, "LAKELOG_TOKEN", token)):
        if given is not None:
            os.environ[variable] = given
            builder = builder.config(name, given)
    return builder


def _use_this_python(settings: Mapping[str, str]) -> None:
    """Make local tasks run in this interpreter. Spark's default is `python3`, which may not have Lakelog installed."""
    if settings.get("spark.master", "local").startswith("local") and "spark.pyspark.python" not in settings:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
