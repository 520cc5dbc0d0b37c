"""A real S3 server for tests: S3Proxy over a temporary folder, on a free loopback port, with one bucket.

scripts/install fetches it, and the jars that Spark needs for s3a. This module does not know what is stored.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.kit import watchdog
from tests.kit.ports import free_port
from tests.kit.process import Command, Process, remove_folder

ACCESS_KEY, SECRET_KEY, REGION = "test", "testtest12", "us-east-1"

_PARTS = Path(__file__).parents[2] / ".parts"


class S3Server:
    """`with S3Server() as s3: store = open_store(s3.url, s3.options)`.

    `endpoint` may be set to the address of a proxy; the options for clients follow it.
    """

    def __init__(self, *, bucket: str = "lake", prefix: str = "log") -> None:
        self.bucket = bucket
        self.url = f"s3://{bucket}/{prefix}"
        self.folder = Path(tempfile.mkdtemp(prefix="lakelog-s3-"))
        watchdog.watch_folder(str(self.folder))
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        # A bucket is a folder in the server's folder.
        (self.folder / "data" / bucket).mkdir(parents=True)
        self._process: Process | None = None

    @property
    def options(self) -> dict[str, str]:
        """Return the options for `open_store`."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }

    @property
    def env(self) -> dict[str, str]:
        """Return the environment for processes that get only the URL."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def spark_conf(self) -> dict[str, str]:
        """Return the configuration for a Spark session that reads s3a:// paths, and for Lakelog's tasks in it."""
        jars = ":".join(map(str, s3a_jars()))
        return {
            "spark.driver.extraClassPath": jars,
            "spark.executor.extraClassPath": jars,
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    @property
    def process(self) -> Process:
        if self._process is None:
            raise RuntimeError("the S3 server was not started")
        return self._process

    def start(self, *, within: float = 60.0) -> S3Server:
        properties = self.folder / "s3proxy.properties"
        properties.write_text("".join(f"{name}={text}\n" for name, text in self._properties().items()))
        argv = [_java(), "-Xmx256m", "-XX:+UseSerialGC", "-jar", str(_s3proxy()), "--properties", str(properties)]
        command = Command(argv=argv, ready=f"tcp://127.0.0.1:{self.port}")
        self._process = Process(command, log_path=self.folder / "s3proxy.log")
        self._process.start(within=within)
        return self

    def close(self) -> None:
        if self._process is not None:
            self._process.kill9()
        remove_folder(self.folder)

    def __enter__(self) -> S3Server:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _properties(self) -> Mapping[str, str]:
        return {
            "s3proxy.endpoint": f"http://127.0.0.1:{self.port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "id",
            "jclouds.credential": "cr",
            "jclouds.filesystem.basedir": str(self.folder / "data"),
            # A whole segment arrives in one request, signed over its hash, which the server computes in memory.
            "s3proxy.v4-max-non-chunked-request-size": str(512 << 20),
        }


@functools.cache
def s3a_jars() -> tuple[Path, ...]:
    """Return the jars that Spark's class path needs for s3a."""
    jars = tuple(sorted((_PARTS / "s3a").glob("*.jar")))
    if not jars:
        raise RuntimeError(f"no jars in {_PARTS / 's3a'}; run scripts/install")
    return jars


def _s3proxy() -> Path:
    jar = next((_PARTS / "s3proxy").glob("s3proxy-*.jar"), None)
    if jar is None:
        raise RuntimeError(f"no S3Proxy in {_PARTS / 's3proxy'}; run scripts/install")
    return jar


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("no java; run scripts/install")
    return java
