"""A server with TLS: its own authority, refused certificates, client certificates, and reloads under load."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

import lakelog
from lakelog.client._sync.http import HttpTransport
from lakelog.client.connecting.servers import servers_of
from lakelog.client.connecting.trust import TlsFiles
from lakelog.errors import ConfigurationError, LakelogError
from lakelog.model.lease import AnswersRequest, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from lakelog.model.ranges import to_ranges
from tests.integration.servers import TOKEN, workers_of
from tests.kit.certificates import Authority, Issued
from tests.kit.ports import free_port
from tests.kit.process import Process, Supervisor
from tests.kit.waiting import eventually, eventually_async

RELOADS = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("server")


@contextmanager
def _running(issued: Issued, env: Mapping[str, str] | None = None) -> Iterator[tuple[int, Process]]:
    port = free_port()
    settings = {"LAKELOG_PORT": str(port), "LAKELOG_TEST_TOKEN": TOKEN, **issued.settings, **(env or {})}
    argv = [sys.executable, "-m", "tests.integration.memory_server"]
    with Supervisor() as supervisor:
        process = supervisor.start(argv, env=settings, ready=lambda: bool(_shown(port)), name="server")
        yield port, process


def _shown(port: int) -> str:
    """Return the fingerprint of the certificate that a new connection gets; empty if there is no server."""
    context = ssl._create_unverified_context()
    try:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
        connection.connect()
        found = connection.sock.getpeercert(binary_form=True)
        connection.close()
    except OSError:
        return ""
    return sha256(found or b"").hexdigest()


def _count(path: Path, event: str) -> int:
    return path.read_text().count(f'"event": "{event}"')


def test_all_clients_work_with_their_own_authority(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    ca_file = str(authority.certificate)
    with _running(issued) as (port, _):
        url = f"https://localhost:{port}"
        with lakelog.connect(url, token=TOKEN, ca_file=ca_file) as log:
            topic = log.topic("orders")
            topic.create()
            for number in range(20):
                topic.publish({"number": number})
            assert len(list(topic.read())) == 20
        asyncio.run(_read_and_work(url, ca_file, port))
        env = {**os.environ, "LAKELOG_URL": url, "LAKELOG_TOKEN": TOKEN, "LAKELOG_CA_FILE": ca_file}
        command = [str(Path(sys.executable).with_name("lakelog")), "topics", "list", "--json"]
        found = subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert "orders" in found.stdout
        refused = subprocess.run(
            command, env={**env, "LAKELOG_CA_FILE": ""}, capture_output=True, text=True, cwd=tmp_path
        )
        assert refused.returncode and "LAKELOG_CA_FILE" in refused.stderr


def _extensions(port: int) -> int:
    """Return how many extensions of leases the server has accepted."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=ssl._create_unverified_context())
    with closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.search(r'^lakelog_answers_total\{outcome="ok",verb="extend"\} (\S+)', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


async def _read_and_work(url: str, ca_file: str, port: int) -> None:
    async with lakelog.connect_async(url, token=TOKEN, ca_file=ca_file) as log:
        topic = log.topic("orders")
        assert len([message async for message in topic.read()]) == 20
        handled: list[object] = []
        extended = asyncio.Event()

        @topic.subscribe(group="billing", lease=6.0, concurrency=20, start_from="earliest")
        async def work(value: dict[str, int]) -> None:
            # The keeper process extends the lease over TLS.
            if value["number"] == 0:
                extensions = partial(asyncio.to_thread, _extensions, port)
                await eventually_async(extensions, within=40, every=0.1, what="the lease is extended")
            handled.append(value)
            if len(handled) >= 20:
                extended.set()

        await log.start()
        await asyncio.wait_for(extended.wait(), 60)
        await log.stop()
        assert len(handled) == 20


def test_a_certificate_that_is_not_valid_is_refused(authority: Authority, tmp_path: Path) -> None:
    used = Issued(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    used.replace_by(authority.issue("expired", days=-1))
    with _running(used) as (port, process):
        _refused(port, authority, "has expired. Renew it; a server loads a new certificate without a restart.")
        before = _shown(port)
        used.replace_by(authority.issue("elsewhere", ("example.org", "10.0.0.1")))
        os.kill(process.pid, signal.SIGHUP)
        eventually(lambda: _shown(port) != before, what="the new certificate")
        _refused(port, authority, "is for another host name. Use a name that the certificate has")
        _refused(port, None, "is from none of the authorities that this machine trusts. Set LAKELOG_CA_FILE")
        plain = lakelog.connect(f"http://127.0.0.1:{port}", token=TOKEN, timeout=0.5)
        with plain:
            eventually(lambda: "use https://" in _error_of(plain), what="the error for a plain connection")


def _error_of(log: lakelog.Lakelog) -> str:
    """Return the error of a call that fails. A call that times out too early does not know the cause."""
    with pytest.raises(LakelogError) as raised:
        log.topics()
    return str(raised.value)


def _refused(port: int, authority: Authority | None, text: str) -> None:
    ca_file = str(authority.certificate) if authority else None
    log = lakelog.connect(f"https://127.0.0.1:{port}", token=TOKEN, ca_file=ca_file)
    with log, pytest.raises(ConfigurationError) as raised:
        log.topics()
    assert text in str(raised.value), raised.value
    with pytest.raises(ConfigurationError) as raised:
        asyncio.run(_list(port, ca_file))
    assert text in str(raised.value), raised.value


async def _list(port: int, ca_file: str | None) -> None:
    async with lakelog.connect_async(f"https://127.0.0.1:{port}", token=TOKEN, ca_file=ca_file) as log:
        await log.topics()


def test_a_server_may_require_client_certificates(authority: Authority, issued: Issued) -> None:
    own = authority.issue("client")
    ca_file = str(authority.certificate)
    with _running(issued, {"LAKELOG_TLS_CLIENT_CA": ca_file}) as (port, _):
        url = f"https://127.0.0.1:{port}"
        files = {"client_certificate": str(own.certificate), "client_key": str(own.key)}
        with lakelog.connect(url, token=TOKEN, ca_file=ca_file, **files) as log:
            assert log.topics() == []
        without = lakelog.connect(url, token=TOKEN, ca_file=ca_file, timeout=1)
        text = "requires a client certificate, set LAKELOG_CLIENT_CERT"
        with without:
            eventually(lambda: text in _error_of(without), what="the error for a missing certificate")


class Load:
    """Publishers, consumers and a pushed stream that try every call once. Any failure is a dropped call."""

    def __init__(self, port: int, authority: Authority) -> None:
        self._servers = servers_of(f"https://127.0.0.1:{port}", TlsFiles(ca=str(authority.certificate)))
        self._port = port
        self._context = ssl.create_default_context(cafile=authority.certificate)
        self._stop = threading.Event()
        self._stop_reading = threading.Event()
        self.failures: list[BaseException] = []
        self.published: list[int] = []
        self.consumed = 0
        self.pushed = 0
        self._threads = [
            threading.Thread(target=self._run, args=(work, same))
            for work in (self._publish, self._consume)
            for same in (True, False)
        ]
        self._threads.append(threading.Thread(target=self._read_pushed))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads[:-1]:
            thread.join(20)
        wanted = len(self.published)
        eventually(lambda: self.pushed >= wanted or bool(self.failures), what="all messages were pushed")
        self._stop_reading.set()
        # One more line, so that the reader looks.
        with closing(HttpTransport(self._servers, TOKEN)) as transport:
            self._publish(transport)
        self._threads[-1].join(20)

    def _run(self, work: Callable[[HttpTransport], None], same: bool) -> None:
        """Repeat the work, on the same connection or on new ones."""
        try:
            while not self._stop.is_set():
                with closing(HttpTransport(self._servers, TOKEN)) as transport:
                    work(transport)
                    while same and not self._stop.is_set():
                        work(transport)
        except BaseException as error:
            self.failures.append(error)

    def _publish(self, transport: HttpTransport) -> None:
        (receipt,) = transport.publish_messages("orders", [Message(value=b"1")], None, None, 10)
        assert isinstance(receipt, Receipt)
        self.published.append(receipt.offset)

    def _consume(self, transport: HttpTransport) -> None:
        request = ConsumeRequest(topic="orders", group="workers", owner="one", max_messages=50, wait_ms=100)
        for lease in transport.consume(request, 10).leases:
            offsets = tuple(to_ranges(sorted(lease.offsets())))
            answer = LeaseAnswer(verb=Verb.ACK, partition=lease.partition, token=lease.token, offsets=offsets)
            transport.answer(AnswersRequest(topic="orders", group="workers", owner="one", answers=[answer]), 10)
            self.consumed += 1

    def _read_pushed(self) -> None:
        try:
            connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=20, context=self._context)
            path = "/v1/consume?topic=orders&group=pushed&owner=stream&start_from=earliest&max_in_flight=10000"
            connection.request("GET", path, headers={"authorization": f"Bearer {TOKEN}"})
            stream = connection.getresponse()
            assert stream.status == 200, stream.read()
            while not self._stop_reading.is_set():
                line = stream.readline()
                assert line, "the stream ended"
                self.pushed += b'"offset"' in line
            stream.close()
            connection.close()
        except BaseException as error:
            self.failures.append(error)


def test_reloads_under_load_drop_no_call(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    used = Issued(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    used.replace_by(issued)
    both = [authority.issue("second"), issued]
    with _running(used) as (port, process):
        with lakelog.connect(f"https://127.0.0.1:{port}", token=TOKEN, ca_file=str(authority.certificate)) as log:
            log.topic("orders").create()
        load = Load(port, authority)
        load.start()
        seen = {_shown(port)}
        for number in range(RELOADS):
            before, count = _shown(port), len(load.published)
            used.replace_by(both[number % 2])
            os.kill(process.pid, signal.SIGHUP)
            eventually(lambda before=before: _shown(port) not in (before, ""), what="the new certificate")
            seen.add(_shown(port))
            eventually(lambda count=count: len(load.published) >= count + 20 or load.failures, what="more load")
        load.stop()
        assert not load.failures, load.failures
        assert len(seen) == 2 and load.consumed
        assert load.pushed >= len(load.published) - 1
        assert _count(process.log_path, "certificate_loaded") >= RELOADS
        # A broken file changes nothing.
        last, failures = _shown(port), _count(process.log_path, "certificate_not_loaded")
        used.key.write_text("broken")
        os.kill(process.pid, signal.SIGHUP)
        eventually(lambda: _count(process.log_path, "certificate_not_loaded") > failures, what="the failure is logged")
        assert _shown(port) == last


@contextmanager
def _running_two(issued: Issued) -> Iterator[tuple[int, Process]]:
    """Start a server with two workers, and wait until both have loaded the certificate."""
    with _running(issued, {"LAKELOG_WORKERS": "2"}) as (port, process):
        eventually(lambda: "" not in _shown_by_all(port), within=60, what="both workers answer")
        yield port, process


def _shown_by_all(port: int) -> set[str]:
    """Return what enough connections get that each of two workers, which share the port, answers one of them."""
    return {_shown(port) for _ in range(20)}


def test_changed_files_reach_all_workers_without_a_signal(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    used = Issued(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    used.replace_by(issued)
    with _running_two(used) as (port, process):
        before = _shown(port)
        used.replace_by(authority.issue("third"))
        eventually(lambda: before not in _shown_by_all(port), what="both workers have loaded it")
        assert _count(process.log_path, "certificate_loaded") >= 2


def test_a_signal_reaches_all_workers(issued: Issued) -> None:
    with _running_two(issued) as (_, process):
        # Without a change, only the signal lets them load it again.
        os.kill(process.pid, signal.SIGHUP)
        eventually(lambda: _count(process.log_path, "certificate_loaded") == 2, what="both got the signal")


def test_a_worker_that_starts_between_two_valid_certificates_is_started_again(
    authority: Authority, issued: Issued, tmp_path: Path
) -> None:
    used = Issued(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    used.replace_by(issued)
    with _running_two(used) as (port, process):
        before = _shown(port)
        # The certificate is replaced, and its key not yet.
        shutil.copyfile(authority.issue("fifth").certificate, used.certificate)
        workers_of(process)[0].kill()
        eventually(lambda: _count(process.log_path, "worker_not_serving") > 0, what="a worker found no valid files")
        used.replace_by(issued)
        eventually(lambda: _shown_by_all(port) == {before}, within=60, what="both workers answer again")
        assert len(workers_of(process)) == 2
