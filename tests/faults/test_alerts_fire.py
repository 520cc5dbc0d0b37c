"""Each alert rule fires in a real fault, evaluated by a real Prometheus, and none fires before.

The rules' times are divided by 60. At CI size, two alerts have to fire. A lost message needs a failover: `test_alerts`
evaluates that rule with its series.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
import yaml

import lakelog
from lakelog.storage.postgres import migrate
from scripts.monitoring import ALERTS, rules
from tests.kit.fleet import LAKELOG, new_token
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.size import Size
from tests.kit.waiting import NeverTrue, eventually

SCALE = 1 / 60
MEMORY = 16 << 20
BODY = (8 << 20) - 1
"""Nearly the largest body: two of them are nearly the whole memory."""
FIRED_WITHIN = 60.0


class Installation:
    """Two servers over two cells, and the Prometheus that scrapes them."""

    def __init__(self, database: str, second: Cluster, folder: Path, supervisor: Supervisor) -> None:
        others = {"b": second.create_database()}
        asyncio.run(migrate(database, others))
        self.token = asyncio.run(new_token(database))
        self.ports = [free_port(), free_port()]
        env = {"LAKELOG_CELLS": json.dumps(others), "LAKELOG_MEMORY_BYTES": str(MEMORY)}
        self.servers: list[Process] = []
        for port in self.ports:
            argv = [LAKELOG, "serve", "--port", str(port), "--database-url", database]
            ready = f"http://127.0.0.1:{port}/readyz"
            self.servers.append(supervisor.start(argv, env=env, ready=ready, name="server"))
        self.prometheus = free_port()
        self._start_prometheus(folder, supervisor)
        self.log = lakelog.connect(f"http://127.0.0.1:{self.ports[0]}", token=self.token)

    def _start_prometheus(self, folder: Path, supervisor: Supervisor) -> None:
        (folder / "rules.yaml").write_text(rules(SCALE).replace("> 900", "> 15"))
        (folder / "token").write_text(self.token)
        targets = [{"targets": [f"127.0.0.1:{port}" for port in self.ports]}]
        groups = {"metrics_path": "/v1/metrics", "authorization": {"credentials_file": str(folder / "token")}}
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "lakelog", "static_configs": targets},
                {"job_name": "lakelog-groups", "static_configs": targets, **groups},
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        argv = [
            shutil.which("prometheus") or "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
        ]
        supervisor.start(argv, ready=f"http://127.0.0.1:{self.prometheus}/-/ready", name="prometheus")

    def fired(self, since: float) -> set[str]:
        """Return the alerts that fired after a time."""
        query = f'ALERTS{{alertstate="firing"}}[{max(1, round(time.time() - since))}s]'
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return {each["metric"]["alertname"] for each in found}

    def await_alerts(self, names: set[str], since: float) -> None:
        """Wait until all of these alerts have fired after a time."""
        with suppress(NeverTrue):
            eventually(lambda: self.fired(since) >= names, within=FIRED_WITHIN, every=0.5)
        assert names - self.fired(since) == set(), "alerts that did not fire"

    def call(self, method: str, path: str, body: object = None, *, server: int = 0) -> int:
        """Make a call, and return its status; 0 if there was no response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[server], timeout=10)
        with closing(connection):
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            try:
                connection.request(method, path, json.dumps(body), headers)
                response = connection.getresponse()
                response.read()
            except OSError:
                return 0
            return response.status


@contextmanager
def repeatedly(*actions: object) -> Iterator[None]:
    """Repeat each action in a thread of its own, five times a second."""
    end = threading.Event()

    def repeat(action: object) -> None:
        while not end.wait(0.2):
            action()  # type: ignore[operator]

    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


@contextmanager
def unfinished_body(port: int, token: str) -> Iterator[None]:
    """Keep a publish call open whose body lacks its last byte."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n".encode())
        connection.sendall(b" " * (BODY - 1))
        yield


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_each_alert_fires_in_its_fault_and_none_before(database: str, size: Size, tmp_path: Path) -> None:
    with ExitStack() as stack:
        second = stack.enter_context(Cluster(own_identity=True))
        supervisor = Supervisor()
        stack.callback(supervisor.close)
        made = Installation(database, second, tmp_path, supervisor)
        stack.callback(made.log.close)
        made.log.topic("orders").create(partitions=4)
        made.log.topic("idle").create(partitions=1)

        def publish() -> None:
            messages = [{"value": 1, "partition": each} for each in range(4)]
            made.call("POST", "/v1/topics/orders/messages", {"messages": messages})

        def probe() -> None:
            made.call("GET", "/readyz")

        def stutter() -> None:
            with paused(second):
                time.sleep(1.5)

        stack.enter_context(repeatedly(publish, probe))
        consumer = stack.enter_context(made.log.consumer("orders", group="billing", commit="immediate"))
        doomed = stack.enter_context(made.log.consumer("idle", group="idle", start_from="earliest"))
        assert doomed.next(timeout=0.1) is None
        with repeatedly(lambda: consumer.batch(100, timeout=0.5)):
            began = time.time()
            clean = size.pick(ci=5.0, full=600.0)
            eventually(lambda: time.time() > began + clean, within=clean + 5, every=0.5)
            assert made.fired(began) == set()

        # `billing` has no worker from here on. `idle` gets a dead letter, and then loses its worker.
        faults = time.time()
        for value in range(2):
            made.log.topic("idle").publish(value)
        message = doomed.next(timeout=10)
        assert message is not None
        message.fail("no such account")
        made.servers[1].kill9()
        made.await_alerts({"LakelogDeadLettersGrow", "LakelogServerDown"}, faults)
        if size is Size.CI:
            return
        doomed.close()
        with unfinished_body(made.ports[0], made.token), unfinished_body(made.ports[0], made.token):
            made.await_alerts({"LakelogMemoryNearLimit", "LakelogGroupBehind", "LakelogGroupStuck"}, faults)
        with repeatedly(stutter):
            made.await_alerts({"LakelogPublishSlow"}, faults)
        with paused(second):
            made.await_alerts({alert.name for alert in ALERTS} - {"LakelogMessagesLost"}, faults)


@contextmanager
def paused(cluster: Cluster) -> Iterator[None]:
    """Pause a cluster, and resume it."""
    cluster.pause()
    try:
        yield
    finally:
        cluster.resume()
