"""Spark for tests: a local session that starts quickly, and a standalone cluster whose executors are real processes.

`python -m tests.kit.spark` creates an archive of Spark's classes, with which a JVM starts in half the time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyspark

from tests.kit.ports import free_port
from tests.kit.process import Process, Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
ARCHIVE = REPOSITORY / ".parts" / f"spark-{pyspark.__version__}.jsa"

QUIET: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
}


def java_options() -> str:
    """JVM options for short-lived JVMs: they compile less, and load their classes from the archive if it exists."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:disable" if ARCHIVE.exists() else ""
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{archive}"


def environment() -> dict[str, str]:
    """Return the environment of a process that starts Spark: this interpreter for workers, loopback only, the checkout
    to import.
    """
    paths = [str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # Spark starts a Python process for each step of a plan. If the caller's environment forbids bytecode files,
        # compiling all modules each time takes longer than the test.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "lakelog-pycache"),
    }


@contextmanager
def local_session(
    conf: Mapping[str, str] | None = None, *, master: str = "local[2]", quick: bool = True
) -> Iterator[SparkSession]:
    """Yield a session that is stopped, with its JVM, at the end. Use one for a whole test module."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # `getOrCreate` would return the other session, with its settings and its master, and we would end it.
    assert SparkContext._active_spark_context is None, "another session of this process is still open"
    os.environ.update(environment())
    with tempfile.TemporaryDirectory(prefix="lakelog-spark-") as folder:
        builder = SparkSession.builder.master(master).appName("lakelog tests")
        settings = {
            **QUIET,
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            **(conf or {}),
        }
        if quick:
            settings.setdefault("spark.driver.extraJavaOptions", java_options())
            settings.setdefault("spark.executor.extraJavaOptions", java_options())
        for name, setting in settings.items():
            builder = builder.config(name, setting)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            stop(session)


def stop(session: SparkSession) -> None:
    """End the session and its JVM, so that the next one can have other settings."""
    from pyspark import SparkContext

    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(120)
    SparkContext._gateway = None
    SparkContext._jvm = None


class SparkCluster:
    """One master and its workers on loopback, from the same package; a worker offers one core.

    Without `checkout`, executors cannot import this checkout.
    """

    def __init__(self, workers: int = 2, *, memory: str = "2g", checkout: bool = True) -> None:
        self._count, self._memory, self._checkout = workers, memory, checkout
        self._supervisor = Supervisor()
        self._folder = tempfile.TemporaryDirectory(prefix="lakelog-cluster-")
        self._port = free_port()
        self.workers: list[Process] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> SparkCluster:
        ready = f"tcp://127.0.0.1:{self._port}"
        arguments = ["-h", "127.0.0.1", "-p", str(self._port), "--webui-port", str(free_port())]
        self._start("Master", arguments, ready)
        for number in range(self._count):
            self.workers.append(self._start_worker(number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._supervisor.close()
        self._folder.cleanup()

    def _start_worker(self, number: int) -> Process:
        folder = Path(self._folder.name) / f"worker{number}"
        port, page = free_port(), free_port()
        arguments = ["-h", "127.0.0.1", "-p", str(port), "--webui-port", str(page), "-c", "1", "-m", self._memory]
        return self._start("Worker", [*arguments, "-d", str(folder), self.url], f"tcp://127.0.0.1:{port}")

    def _start(self, name: str, arguments: list[str], ready: str) -> Process:
        home = Path(pyspark.__file__).parent
        env = {**environment(), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        env["SPARK_DAEMON_JAVA_OPTS"] = java_options()
        if not self._checkout:
            env["PYTHONPATH"] = ""
        argv = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name.lower()}.{name}", *arguments]
        return self._supervisor.start(argv, env=env, ready=ready, name=name.lower())


def make_archive() -> None:
    """Run a session with typical operations, and write down the classes that it loaded."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    making = ARCHIVE.with_suffix(f".{os.getpid()}")
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit={making}"
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-archive-") as folder,
        local_session({"spark.driver.extraJavaOptions": options}) as session,
    ):
        session.range(1000).selectExpr("cast(id as string) as v").write.parquet(f"{folder}/rows")
        session.read.parquet(f"{folder}/rows").groupBy("v").count().count()
        session.range(10).mapInArrow(lambda batches: batches, "id long").count()
    making.rename(ARCHIVE)


if __name__ == "__main__" and not ARCHIVE.exists():
    make_archive()
