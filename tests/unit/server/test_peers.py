"""Calls between servers: over TLS, recognised by the announced certificate, and on a fixed port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lakelog.errors import ConfigurationError
from lakelog.model.token import Right
from lakelog.server import Drain, ServerSettings, listening
from lakelog.server.auth import Grant
from lakelog.server.calls import NEEDS_GRANT
from lakelog.server.group_routing import CLIENT, FORWARDED, GroupRouting
from lakelog.server.listening import listen, listen_for_servers
from lakelog.server.machine import machine_id
from lakelog.server.metrics import Metrics
from lakelog.server.peers import PeerAddress, WrongCertificate, open_peer
from lakelog.server.server_grants import GRANT, ForwardedCall, ServerGrants
from lakelog.server.tls import ServerCertificate, TlsFiles
from lakelog.storage.groups import ServerInfo
from lakelog.storage.memory import MemoryCatalog
from tests.kit.certificates import Authority, Issued
from tests.kit.ports import free_port
from tests.kit.waiting import eventually_async
from tests.unit.server.harness import World, world


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> list[Issued]:
    """Certificates for names that servers do not use among each other."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return [authority.issue(f"server-{number}", ("lakelog.example",)) for number in range(2)]


def _certificate(issued: Issued) -> ServerCertificate:
    return ServerCertificate(TlsFiles(certificate=str(issued.certificate), key=str(issued.key)))


@asynccontextmanager
async def _listening(certificate: ServerCertificate) -> AsyncIterator[PeerAddress]:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=certificate.for_servers) as server:
        port = server.sockets[0].getsockname()[1]
        yield PeerAddress(host="127.0.0.1", port=port, fingerprint=certificate.fingerprint)


@pytest.mark.parametrize("text", ["10.0.0.1:8480", "[::1]:9", "a.example:1", "tls://10.0.0.1:8480/ab12"])
def test_an_address_is_read_as_it_is_written(text: str) -> None:
    assert str(PeerAddress.parse(text)) == text


@pytest.mark.parametrize("text", ["", "10.0.0.1", "a:b", "tls://10.0.0.1:8480", "10.0.0.1:8480/ab12", "http://s"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        PeerAddress.parse(text)


async def test_a_server_is_recognised_by_the_certificate_that_it_announced(issued: list[Issued]) -> None:
    one, other = map(_certificate, issued)
    async with _listening(one) as address:
        reader, writer = await open_peer(address)
        assert await reader.readline() == b"hello\n"
        writer.close()
        with pytest.raises(WrongCertificate):
            await open_peer(replace(address, fingerprint=other.fingerprint))


def _routing(catalog: MemoryCatalog, port: int, certificate: ServerCertificate | None) -> GroupRouting:
    return GroupRouting(catalog.groups, f"127.0.0.1:{port}", Drain(), Metrics(), certificate)


async def test_a_new_certificate_is_announced_and_found(issued: list[Issued], tmp_path: Path) -> None:
    used = Issued(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    used.replace_by(issued[0])
    certificate = _certificate(used)
    catalog = MemoryCatalog()
    async with _listening(certificate) as address:
        home, here = _routing(catalog, address.port, certificate), _routing(catalog, 1, None)
        await home.start()
        await here.start()
        before = home._me
        used.replace_by(issued[1])
        certificate.reload()
        assert home._me != before

        async def is_announced() -> bool:
            return home._me in (await catalog.groups.server_seen(here._me, memory_seconds=6)).servers

        await eventually_async(is_announced, what="the new certificate is announced")
        # This server has the old announcement, and looks for a new one.
        assert before in here._servers
        _, writer = await here._connect(before)
        writer.close()
        await home.stop()
        await here.stop()


async def test_a_server_with_tls_calls_only_servers_with_tls(issued: list[Issued]) -> None:
    catalog = MemoryCatalog()
    plain = ServerInfo(server_id=machine_id() + "plain", address="127.0.0.1:9")
    safe = ServerInfo(server_id=machine_id() + "safe", address="tls://127.0.0.1:9/ab12")
    broken = ServerInfo(server_id=machine_id() + "broken", address="nowhere")
    for each in (plain, safe, broken):
        await catalog.groups.server_seen(each, memory_seconds=6)
    for certificate, known in ((_certificate(issued[0]), {safe}), (None, {safe, plain})):
        here = _routing(catalog, 1, certificate)
        await here.start()
        assert {each for each in here._servers if each.address.endswith((":9", "ab12"))} == known
        assert broken not in here._servers
        await here.stop()
        await catalog.groups.server_gone(here._me.server_id)


# The receiver ---------------------------------------------------------------------------------------------------------

BODY = b'{"topic": "orders", "group": "g", "owner": "o"}'


@asynccontextmanager
async def _home() -> AsyncIterator[tuple[World, ServerGrants]]:
    """A server that others forward calls to, and what another server signs with."""
    async with world(address="127.0.0.1:1") as made:
        routing = made.app._routing
        assert routing is not None
        await routing.start()
        other = ServerGrants(made.engine.catalog.groups)
        await other.read_keys()
        yield made, other
        await routing.stop()


def _headers(made: World, other: ServerGrants, body: bytes = BODY, *rights: Right) -> dict[str, str]:
    routing = made.app._routing
    assert routing is not None
    home = routing._me.server_id
    call = ForwardedCall(method="POST", target=b"/v1/consume", client=b"10.0.0.5", home=home)
    grant = Grant(scope=made.scope, rights=frozenset(rights or {Right.READ}), token="t1", name="billing")
    signed = other.sign(grant, call, body)
    assert signed is not None
    return {
        GRANT.decode(): signed.decode(),
        FORWARDED.decode(): home,
        CLIENT.decode(): "10.0.0.5",
        "content-type": "application/json",
    }


async def test_a_grant_replaces_the_token() -> None:
    async with _home() as (made, other):
        headers = _headers(made, other)
        assert (await made.call("POST", "/v1/consume", body=BODY, token=None, headers=headers)).status == 200
        again = await made.call("POST", "/v1/consume", body=BODY, token=None, headers=headers)
        assert (again.status, again.json["code"]) == (401, "not_authenticated")


async def test_a_grant_gives_no_more_rights_than_the_caller_had() -> None:
    async with _home() as (made, other):
        headers = _headers(made, other, BODY, Right.PUBLISH)
        reply = await made.call("POST", "/v1/consume", body=BODY, token=None, headers=headers)
        assert (reply.status, reply.json["code"]) == (403, "not_allowed")


async def test_a_grant_is_for_its_body_only() -> None:
    async with _home() as (made, other):
        headers = _headers(made, other)
        other_body = BODY.replace(b"orders", b"prices")
        reply = await made.call("POST", "/v1/consume", body=other_body, token=None, headers=headers)
        assert (reply.status, reply.json["code"]) == (401, "not_authenticated")
        assert "another body" in reply.json["detail"]


async def test_a_broken_grant_is_refused_even_with_a_token() -> None:
    async with _home() as (made, other):
        headers = {**_headers(made, other), GRANT.decode(): "x.y"}
        assert (await made.call("POST", "/v1/consume", body=BODY, headers=headers)).status == 401


async def test_the_port_for_servers_needs_a_grant_if_clients_need_certificates() -> None:
    async with _home() as (made, other):
        for headers, status in ((_headers(made, other), 200), ({"content-type": "application/json"}, 401)):
            token = None if status == 200 else ""
            reply = await made.call(
                "POST", "/v1/consume", body=BODY, token=token, headers=headers, scope={NEEDS_GRANT: True}
            )
            assert reply.status == status, reply.body


# The port -------------------------------------------------------------------------------------------------------------


def test_each_worker_has_its_own_fixed_port() -> None:
    first = free_port()
    settings = ServerSettings(port=0, internal_port=first)
    (shared,) = listen(settings)
    with shared, listen_for_servers(settings, shared, 0) as one, listen_for_servers(settings, shared, 1) as two:
        assert [each.getsockname()[1] for each in (one, two)] == [first, first + 1]
        with pytest.raises(ConfigurationError, match="--internal-port"):
            listen_for_servers(settings, shared, 0)


def test_on_loopback_any_free_port_is_used() -> None:
    settings = ServerSettings(port=0)
    (shared,) = listen(settings)
    with shared, listen_for_servers(settings, shared) as one, listen_for_servers(settings, shared, 1) as two:
        assert one.getsockname()[1] != two.getsockname()[1]


def test_on_other_addresses_the_port_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "INTERNAL_PORT", free_port())
    settings = ServerSettings(port=0, host="0.0.0.0")
    (shared,) = listen(settings)
    with shared, listen_for_servers(settings, shared) as own:
        assert own.getsockname()[1] == listening.INTERNAL_PORT
        assert own.family == socket.AF_INET
