"""The image of deploy/Containerfile, on a base that debootstrap makes, since no registry may be reachable.

It is built with buildah, and run in a chroot: as the user of the image, with a read-only root and a writable /tmp. Both
tools are Debian packages; without them, and without the rights of root, the test is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakelog.model.token import Right
from tests.integration.test_deploy import DEPLOY, tool
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor
from tests.unit.docs.markdown import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]
DEBIAN = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
# How this machine reaches the registry of Python packages.
SHARED = ("/etc/pip.conf", "/etc/ssl/certs")
QUICKSTART = """
import lakelog
with lakelog.connect() as log:
    orders = log.topic("orders")
    first = orders.publish({"total": 12}, key="a1", idempotency_key="order-created:123")
    again = orders.publish({"total": 12}, key="a1", idempotency_key="order-created:123")
    assert again.offset == first.offset and again.duplicate
    print([message.value for message in orders.read()])
"""
# Mounts are those of a new namespace, and end with it.
CHROOT = 'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; mount -t tmpfs tmpfs "$0/tmp"; exec chroot "$@"'


@dataclass(frozen=True)
class Image:
    root: Path
    user: str
    start: Sequence[str]
    """What the image runs without further words."""
    env: Mapping[str, str]

    def command(self, *argv: str, **env: str) -> list[str]:
        """Return the command that runs these words in the image, with no other variables. HOME is that of a runtime."""
        variables = [f"{name}={value}" for name, value in {"HOME": "/", **self.env, **env}.items()]
        chroot = [f"--userspec={self.user}", str(self.root), "env", "-i", *variables, *argv]
        return ["unshare", "--mount", "sh", "-ec", CHROOT, str(self.root), *chroot]

    def run(self, *argv: str, **env: str) -> str:
        done = subprocess.run(self.command(*argv, **env), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def built(folder: Path) -> Iterator[Image]:
    """Build the image in the folder, and mount it."""
    base, dist = folder / "base", folder / "dist"
    run = [tool("buildah", "apt-get install buildah"), f"--root={folder}/store", f"--runroot={folder}/run"]
    make = [tool("debootstrap", "apt-get install debootstrap"), "--variant=minbase", f"--include={PACKAGES}"]
    env = {**os.environ, "STORAGE_DRIVER": "vfs"}

    def buildah(*argv: str | Path) -> str:
        done = subprocess.run([*run, *map(str, argv)], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    subprocess.run([*make, DEBIAN, str(base)], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT], check=True, capture_output=True)
    (folder / "requirements.lock").write_bytes((ROOT / "requirements.lock").read_bytes())
    container = buildah("from", "scratch")
    buildah("add", container, base, "/")
    buildah("commit", container, "localhost/base")
    shared = [word for path in SHARED if os.path.exists(path) for word in ("--volume", f"{path}:{path}:ro")]
    recipe = ["--file", DEPLOY / "Containerfile", "--build-arg", "BASE=localhost/base", "--tag", "localhost/lakelog"]
    buildah("build", "--isolation=chroot", *shared, *recipe, folder)
    config = json.loads(buildah("inspect", "--type=image", "localhost/lakelog"))["OCIv1"]["config"]
    container = buildah("from", "localhost/lakelog")
    root = Path(buildah("mount", container))
    try:
        given = dict(each.split("=", 1) for each in config["Env"])
        yield Image(root, config["User"], [*config["Entrypoint"], *config["Cmd"]], given)
    finally:
        buildah("umount", container)


@pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root")
def test_the_image_passes_the_quickstart_without_rights(tmp_path: Path) -> None:
    with built(tmp_path) as image, Cluster() as cluster, Supervisor() as supervisor:
        port, database = free_port(), cluster.create_database()
        url = f"http://127.0.0.1:{port}"
        assert image.user == "10001:10001"
        image.run("lakelog", "migrate", LAKELOG_DATABASE_URL=database)
        create = ["lakelog", "tokens", "create", "--name", "quickstart", "--rights", ",".join(Right), "--json"]
        token = json.loads(image.run(*create, LAKELOG_DATABASE_URL=database))["secret"]
        start = image.command(*image.start, LAKELOG_DATABASE_URL=database, LAKELOG_PORT=str(port))
        server = supervisor.start(start, ready=f"{url}/readyz", name="server")
        client = {"LAKELOG_URL": url, "LAKELOG_TOKEN": token}
        image.run("lakelog", "topics", "create", "orders", "--partitions", "4", **client)
        image.run("lakelog", "publish", "orders", "--key", "a1", "--value", '{"total": 30}', **client)
        assert image.run("python3", "-c", QUICKSTART, **client) == "[{'total': 30}, {'total': 12}]\n"
        with pytest.raises(AssertionError, match="Read-only file system"):
            image.run("touch", "/opt/lakelog/file")
        server.terminate()
