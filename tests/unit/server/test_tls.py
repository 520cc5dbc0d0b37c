"""The certificate of a server: loaded again when its files change, kept when the new files are broken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from lakelog.errors import ConfigurationError
from lakelog.server import ServerSettings, unready
from lakelog.server.listening import listen
from lakelog.server.tls import ServerCertificate, TlsFiles
from tests.kit.certificates import Authority, Issued


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def others(authority: Authority) -> list[Issued]:
    return [authority.issue(f"other-{number}") for number in range(2)]


@pytest.fixture
def issued(others: list[Issued], tmp_path: Path) -> Issued:
    made = Issued(certificate=tmp_path / "server.pem", key=tmp_path / "server.key")
    made.replace_by(others[0])
    return made


def _files(issued: Issued) -> TlsFiles:
    return TlsFiles(certificate=str(issued.certificate), key=str(issued.key))


@asynccontextmanager
async def _listening(tls: ssl.SSLContext) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line)
        except OSError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def _connect(
    port: int, authority: Authority, own: Issued | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cafile=authority.certificate)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)


async def _echoed(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    reader, writer = stream
    writer.write(b"hello\n")
    return await asyncio.wait_for(reader.readline(), 5) == b"hello\n"


def _shown(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> str:
    return sha256(stream[1].get_extra_info("ssl_object").getpeercert(binary_form=True)).hexdigest()


async def test_new_connections_get_the_new_certificate_and_open_ones_continue(
    authority: Authority, issued: Issued, others: list[Issued]
) -> None:
    certificate = ServerCertificate(_files(issued))
    first = certificate.fingerprint
    changes: list[str] = []
    certificate.changed.append(lambda: changes.append(certificate.fingerprint))
    async with _listening(certificate.for_clients) as port:
        before = await _connect(port, authority)
        assert _shown(before) == first
        certificate.reload_if_changed()
        assert changes == []
        issued.replace_by(others[1])
        certificate.reload_if_changed()
        assert changes == [certificate.fingerprint] and certificate.fingerprint != first
        after = await _connect(port, authority)
        assert _shown(after) == certificate.fingerprint
        assert await _echoed(before) and await _echoed(after)
        for _, writer in (before, after):
            writer.close()


@pytest.mark.parametrize("damage", ["key of another", "cut", "missing", "no certificate"])
async def test_broken_files_keep_the_certificate_and_are_logged_once(
    authority: Authority,
    issued: Issued,
    others: list[Issued],
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificate = ServerCertificate(_files(issued))
    first = certificate.fingerprint
    if damage == "key of another":
        issued.key.write_bytes(others[1].key.read_bytes())
    elif damage == "cut":
        issued.certificate.write_bytes(issued.certificate.read_bytes()[:200])
    elif damage == "missing":
        issued.key.unlink()
    else:
        issued.certificate.write_text("nothing")
    async with _listening(certificate.for_clients) as port:
        with caplog.at_level(logging.INFO, "lakelog.server.tls"):
            certificate.reload_if_changed()
            assert not caplog.records, "the files may be in the middle of an update"
            for _ in range(5):
                certificate.reload_if_changed()
        (record,) = caplog.records
        assert record.levelno == logging.ERROR and "keeps the certificate that it has" in record.getMessage()
        assert str(issued.certificate) in record.getMessage()
        stream = await _connect(port, authority)
        assert _shown(stream) == first and await _echoed(stream)
        stream[1].close()
    issued.replace_by(others[1])
    certificate.reload_if_changed()
    assert certificate.fingerprint != first


async def test_sighup_reports_broken_files_immediately(issued: Issued, caplog: pytest.LogCaptureFixture) -> None:
    certificate = ServerCertificate(_files(issued))
    issued.key.write_text("nothing")
    with caplog.at_level(logging.INFO, "lakelog.server.tls"):
        certificate.reload()
        for _ in range(3):
            certificate.reload_if_changed()
    assert len(caplog.records) == 1


async def test_clients_without_a_certificate_are_refused_if_one_is_required(
    authority: Authority, issued: Issued, tmp_path: Path
) -> None:
    certificate = ServerCertificate(replace(_files(issued), client_ca=str(authority.certificate)))
    stranger = Authority(tmp_path, "stranger").issue("client")
    async with _listening(certificate.for_clients) as port:
        good = await _connect(port, authority, authority.issue("client"))
        assert await _echoed(good)
        good[1].close()
        for own in (None, stranger):
            bad = await _connect(port, authority, own)
            # asyncio ends the connection, with or without telling why.
            with contextlib.suppress(OSError):
                assert not await _echoed(bad)
            bad[1].close()
    async with _listening(certificate.for_servers) as port:
        server = await _connect(port, authority)
        assert await _echoed(server), "other servers have a grant"
        server[1].close()


def test_files_that_cannot_be_used_are_refused_at_the_start(issued: Issued, others: list[Issued]) -> None:
    mixed = replace(_files(issued), key=str(others[1].key))
    with pytest.raises(ConfigurationError, match="the key does not belong to the certificate"):
        ServerCertificate(mixed)
    with pytest.raises(ConfigurationError, match="No such file"):
        ServerCertificate(replace(_files(issued), key="/missing.key"))
    with pytest.raises(ConfigurationError, match="--tls-certificate and --tls-key"):
        ServerSettings(tls_certificate=str(issued.certificate)).tls_files()
    assert ServerSettings().tls_files() is None


async def test_a_starting_server_answers_over_tls(
    authority: Authority, issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unready, "AFTER_SECONDS", 0.0)
    certificate = ServerCertificate(_files(issued))
    (listener,) = listen(ServerSettings(port=0))
    with listener:
        async with unready.unready(listener, certificate.for_clients):
            reader, writer = await _connect(listener.getsockname()[1], authority)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 503")
            writer.close()
