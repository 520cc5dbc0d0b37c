"""A capture of all ports: with TLS it holds no token, and calls between servers never carry one."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import lakelog
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.ranges import to_ranges
from lakelog.storage.postgres import migrate
from tests.kit.capture import Capture
from tests.kit.certificates import Authority
from tests.kit.fleet import LAKELOG, new_token
from tests.kit.ports import free_port
from tests.kit.process import Supervisor
from tests.kit.waiting import eventually

GROUPS = 8


@contextmanager
def _servers(
    database: str, pairs: Sequence[tuple[int, int]], env: Mapping[str, str], context: ssl.SSLContext | None
) -> Iterator[None]:
    """Start servers on these ports for clients and for other servers."""
    with Supervisor() as supervisor:
        for port, internal in pairs:
            argv = [LAKELOG, "serve", "--port", str(port), "--internal-port", str(internal)]
            argv += ["--database-url", database]
            supervisor.start(argv, env=env, name="server")
        for port, _ in pairs:
            eventually(lambda port=port: _metrics(port, context), within=60, what="the server is ready")
        yield


def _metrics(port: int, context: ssl.SSLContext | None) -> str:
    """Return the metrics of a server; empty if it does not respond."""
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        return reply.read().decode() if reply.status == 200 else ""
    except OSError:
        return ""
    finally:
        connection.close()


def _forwarded(text: str) -> float:
    found = re.search(r'^lakelog_forwarded_calls_total\{outcome="answered"\} (\S+)', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _work(url: str, token: str, ca_file: str | None) -> None:
    """Publish, and consume with several groups, so that some calls are for the other server."""
    with lakelog.connect(url, token=token, ca_file=ca_file) as log:
        for number in range(GROUPS):
            log.topic("orders").publish({"number": number})
            request = ConsumeRequest(
                topic="orders", group=f"g{number}", owner="one", max_messages=50, start_from="earliest"
            )
            consumed = log.group(f"g{number}").consume(request)
            for lease in consumed.leases:
                offsets = tuple(to_ranges(sorted(lease.offsets())))
                said = LeaseAnswer(verb=Verb.ACK, partition=lease.partition, token=lease.token, offsets=offsets)
                log.group(f"g{number}").answer("orders", "one", [said])


@contextmanager
def _prepared(database: str) -> Iterator[str]:
    asyncio.run(migrate(database))
    yield asyncio.run(new_token(database))


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_a_capture_holds_no_token(database: str, tls: bool, tmp_path: Path) -> None:
    pairs = [(free_port(), free_port()) for _ in range(2)]
    try:
        capture = Capture([urlsplit(database).port or 5432, *chain(*pairs)])
    except PermissionError:
        pytest.skip("capturing packets needs the right to open raw sockets (CAP_NET_RAW)")
    authority = Authority(tmp_path)
    env = authority.issue("server").settings if tls else {}
    ca_file = str(authority.certificate) if tls else None
    context = ssl.create_default_context(cafile=ca_file) if tls else None
    with capture, _prepared(database) as token, _servers(database, pairs, env, context):
        scheme = "https" if tls else "http"
        with lakelog.connect(f"{scheme}://127.0.0.1:{pairs[0][0]}", token=token, ca_file=ca_file) as log:
            log.topic("orders").create()

        def is_forwarding() -> bool:
            for port, _ in pairs:
                _work(f"{scheme}://127.0.0.1:{port}", token, ca_file)
            return all(_forwarded(_metrics(port, context)) > 0 for port, _ in pairs)

        eventually(is_forwarding, within=60, what="both servers forward calls")
    assert capture.lost == 0
    internal = {port for _, port in pairs}
    assert internal <= capture.ports, "calls between servers are in the capture"
    secret = token.encode()
    for port in internal:
        streams = capture.sent_to(port)
        assert not any(secret in stream for stream in streams)
        assert any(b"x-lakelog-grant: " in stream for stream in streams) is not tls
    # Without TLS, the capture sees the token on its way to the first server: it would see it elsewhere too.
    assert any(secret in stream for stream in capture.sent_to()) is not tls
