"""What Spark needs on this machine: found before it starts, and said in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakelog.errors import ConfigurationError
from lakelog.spark.configuring import check_java, configure, has_only_local_files, starts_java


def java(folder: Path, script: str) -> str:
    """A folder with a `bin/java` that does so."""
    (folder / "bin").mkdir()
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return str(folder)


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_that_is_new_enough_is_taken_from_java_home_or_the_path(tmp_path: Path, version: str) -> None:
    home = java(tmp_path, says(version))
    check_java({"JAVA_HOME": home, "PATH": ""})
    check_java({"PATH": f"{home}/bin"})


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (says("1.8.0_392"), "Spark needs Java 17 or later, and .*/bin/java is Java 8. Install Java 17 or later"),
        (says("11.0.2"), "is Java 11"),
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "Spark needs Java, and .*/bin/java does not run"),
    ],
)
def test_java_that_is_too_old_or_does_not_run_is_refused(tmp_path: Path, script: str, said: str) -> None:
    home = java(tmp_path, script)
    for environ in ({"JAVA_HOME": home, "PATH": ""}, {"PATH": f"{home}/bin"}):
        with pytest.raises(ConfigurationError, match=said) as caught:
            check_java(environ)
        assert "\n" not in caught.value.detail


def test_configure_without_java_says_what_to_install_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match="there is no `java` in PATH, and JAVA_HOME is not set"):
        configure()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"there is no `java` at JAVA_HOME \("):
        configure()


def test_java_is_not_asked_for_where_this_process_does_not_start_it() -> None:
    assert starts_java({}, {})
    assert not starts_java({"spark.remote": "sc://host"}, {})
    assert not starts_java({}, {"SPARK_REMOTE": "sc://host"})
    assert not starts_java({}, {"PYSPARK_GATEWAY_PORT": "1234"})


def test_checksums_of_files_are_left_out_only_where_no_other_file_system_needs_them() -> None:
    """Hadoop's file system for S3 writes through a local one with checksums."""
    assert has_only_local_files({"spark.master": "local[2]", "spark.app.name": "packages"}, {})
    assert has_only_local_files({}, {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"})
    for settings in (
        {"spark.master": "spark://host:7077"},
        {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"},
        {"spark.hadoop.fs.s3a.endpoint": "http://x"},
        {"spark.driver.extraClassPath": "aws.jar"},
    ):
        assert not has_only_local_files(settings, {})
    for environ in ({"PYSPARK_SUBMIT_ARGS": "--packages x:y:1 pyspark-shell"}, {"SPARK_CONF_DIR": "/etc/spark"}):
        assert not has_only_local_files({}, environ)


def test_local_tasks_run_in_this_python_unless_it_is_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr("lakelog.spark.configuring.check_java", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    configure(SparkSession.builder.master("spark://host:7077"))
    assert "PYSPARK_PYTHON" not in os.environ
    configure(SparkSession.builder.master("local[2]"))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    configure()
    assert os.environ["PYSPARK_PYTHON"] == "mine"


def test_without_pyspark_the_extra_is_named() -> None:
    hide = "import sys; sys.modules['pyspark'] = None; "
    for statement in ("from lakelog.spark import topic", "from lakelog.spark import configure; configure()"):
        done = subprocess.run([sys.executable, "-c", hide + statement], capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == (
            "lakelog.errors.ConfigurationError: PySpark is not installed. Install it with "
            "`pip install 'lakelog[spark]'`."
        )
