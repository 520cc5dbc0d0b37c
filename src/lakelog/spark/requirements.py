"""Checks of what Spark requires on this machine, because Spark's own errors do not say what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from lakelog.errors import ConfigurationError

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
