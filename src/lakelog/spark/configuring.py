"""`configure`: checks what Spark requires on this machine, and applies settings that make a micro-batch faster.

The checks exist because the errors of Spark do not say what to install.

Without its native library, Hadoop starts 20 processes in a micro-batch. The settings avoid 16 of them. Avoiding the
other 4 would need a jar on every class path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.errors import ConfigurationError
from lakelog.spark.session import TOKEN_CONF, URL_CONF, require_no_password

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
_INSTALL = (
    f"Install Java {JAVA} or later, for example with `apt install openjdk-{JAVA}-jre-headless` or "
    f"`brew install openjdk@{JAVA}`."
)
_ANSWER_SECONDS = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check_pyspark() -> None:
    """Raise `ConfigurationError` if PySpark is not installed."""
    if find_spec("pyspark") is None:
        raise ConfigurationError("PySpark is not installed. Install it with `pip install 'lakelog[spark]'`.")


def check_java(environ: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigurationError` if the `java` that Spark would start is missing or too old."""
    home = environ.get("JAVA_HOME")
    command = _of_home(home) if home else shutil.which("java", path=environ.get("PATH"))
    where = f"at JAVA_HOME ({home})" if home else "in PATH, and JAVA_HOME is not set"
    if command is None:
        raise ConfigurationError(f"Spark requires Java, but there is no `java` {where}. {_INSTALL}")
    version = _version_of(command)
    if version is None:
        raise ConfigurationError(f"Spark needs Java, and {command} does not run. {_INSTALL}")
    if version < JAVA:
        raise ConfigurationError(f"Spark needs Java {JAVA} or later, and {command} is Java {version}. {_INSTALL}")


def starts_java(settings: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a session with these settings starts Java in this process.

    spark-submit has already started it, and Spark Connect does not use it.
    """
    is_remote = "spark.remote" in settings or "SPARK_REMOTE" in environ
    return not is_remote and "PYSPARK_GATEWAY_PORT" not in environ and not _has_session()


def _has_session() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def _of_home(home: str) -> str | None:
    command = Path(home) / "bin" / "java"
    return str(command) if command.is_file() else None


def _version_of(command: str) -> int | None:
    """Return the major version of Java, or None if it does not run.

    On macOS, `java` may be a stub that only prints how to install it.
    """
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if done.returncode == 0 and found else None


SETTINGS: Mapping[str, str] = {
    # Batches pass between the JVM and Python many times in a micro-batch, which is faster without TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager checks for links, and without Hadoop's native library each check starts a process: 16 in a
    # micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


LOCAL_SETTINGS: Mapping[str, str] = {
    # Without checksums, a micro-batch writes half as many files.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""Settings for a local master without other file systems."""
_OTHER_FILES = re.compile(r"(--|spark\.)(jars|packages|repositories)|spark\.hadoop\.fs\.|extraClassPath")


def has_only_local_files(settings: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a session with these settings runs in this process and can use no other file system.

    Hadoop's connectors for object stores buffer writes in a `LocalFileSystem`, and fail if the session uses another
    class for local files.
    """
    if not settings.get("spark.master", "local").startswith("local"):
        return False
    named = " ".join([*settings, environ.get("PYSPARK_SUBMIT_ARGS", "")])
    return not (_OTHER_FILES.search(named) or environ.get("SPARK_CONF_DIR") or environ.get("SPARK_HOME"))


def configure(
    builder: SparkSession.Builder | None = None, *, url: str | None = None, token: str | None = None
) -> SparkSession.Builder:
    """Return a session builder with the settings for Lakelog: `configure().getOrCreate()`.

    The session reads and writes topics of that server, also with `format("lakelog")` and in SQL. This includes a
    session that already exists, as in a notebook or under spark-submit, where `getOrCreate` returns that session.

    Args:
        builder: The builder to configure, for example with a master or a name. Settings that you make on the result
            override those made here. Default: a new builder.
        url: The URL of the server for the whole session, without a password. Default: `LAKELOG_URL`, then the server
            of `lakelog dev` in this folder.
        token: The token for the whole session. Default: `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If PySpark is not installed, or if the session would start a Java that is missing or too
            old.
        InvalidRequest: If the URL contains a password, which Spark would show in its UI.
    """
    check_pyspark()
    from lakelog.spark.session_builder import SessionBuilder

    made: Mapping[str, str] = getattr(builder, "_options", {})
    settings = SETTINGS
    if starts_java(made):
        check_java()
        _use_this_python(made)
        if has_only_local_files(made):
            settings = {**SETTINGS, **LOCAL_SETTINGS}
    configured = SessionBuilder(made)
    for name, setting in settings.items():
        configured.config(name, setting)
    for name, given in ((URL_CONF, require_no_password(url)), (TOKEN_CONF, token)):
        if given is not None:
            configured.config(name, given)
    return configured


def _use_this_python(settings: Mapping[str, str]) -> None:
    """Make local tasks run in this interpreter. Spark's default is `python3`, which may not have Lakelog installed."""
    if settings.get("spark.master", "local").startswith("local") and "spark.pyspark.python" not in settings:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
