"""TLS of the server: the certificate, and loading it again without a restart when its files change.

Each new connection takes the newest certificate that could be loaded. Open connections keep theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lakelog.errors import ConfigurationError
from lakelog.reporting import log_event

CHECK_SECONDS = 2.0
"""How often the files are checked for changes."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_NEVER = object()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files of a server's certificate."""

    certificate: str
    """The certificate, followed by those of intermediate authorities."""
    key: str
    client_ca: str | None = None
    """The authorities of client certificates. Without the file, clients need no certificate."""

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """Return a value that changes when one of the files is written or replaced."""
        found = (os.stat(path) for path in (self.certificate, self.key, self.client_ca) if path)
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


class _LatestContext(ssl.SSLContext):
    """A context that starts each connection with another one, which can be replaced as a whole.

    Loading a certificate into a context that is in use could fail between the certificate and its key.
    """

    latest: ssl.SSLContext

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.latest.wrap_bio(*args, **kwargs)


class ServerCertificate:
    """The certificate of a server process."""

    def __init__(self, files: TlsFiles) -> None:
        """Load the files. Raise `ConfigurationError` if they cannot be used."""
        self._files = files
        self.requires_client_certificates = files.client_ca is not None
        self.for_clients: ssl.SSLContext = _LatestContext(ssl.PROTOCOL_TLS_SERVER)
        self.for_servers: ssl.SSLContext = _LatestContext(ssl.PROTOCOL_TLS_SERVER)
        """The context of the port for other servers, which need no client certificate: a signed grant names them."""
        self.fingerprint = ""
        """The SHA-256 hash of the certificate, by which other servers recognise it."""
        self.changed: list[Callable[[], None]] = []
        """Functions to call after another certificate was loaded."""
        self._loaded: object = None
        self._tried: object = _NEVER
        self._reported: object = _NEVER
        self._load()

    def reload(self) -> None:
        """Load the files again. If that fails, keep the certificate and log why."""
        self._reported = self._state()
        self._reload(reports=True)

    def reload_if_changed(self) -> None:
        """Load the files again if they changed.

        A failure is logged only if the same files fail twice: the certificate and its key are not written at once.
        """
        state = self._state()
        if state in (self._loaded, self._reported):
            return
        if state == self._tried:
            self.reload()
        else:
            self._tried = state
            self._reload(reports=False)

    def _state(self) -> object:
        try:
            return self._files.state()
        except OSError:
            return None

    def _reload(self, *, reports: bool) -> None:
        try:
            self._load()
        except ConfigurationError as error:
            if reports:
                message = f"{error.detail} The server keeps the certificate that it has."
                log_event(_log, logging.ERROR, "certificate_not_loaded", message, reason=error.detail)
            return
        message = f"The certificate {self._files.certificate} was loaded again."
        log_event(_log, logging.INFO, "certificate_loaded", message, sha256=self.fingerprint)
        for call in self.changed:
            call()

    def _load(self) -> None:
        state, contexts, fingerprint = check(self._files)
        for context, latest in zip((self.for_clients, self.for_servers), contexts, strict=True):
            assert isinstance(context, _LatestContext)
            context.latest = latest
        self._loaded, self.fingerprint = state, fingerprint


def check(files: TlsFiles) -> tuple[object, tuple[ssl.SSLContext, ssl.SSLContext], str]:
    """Return the state of the files, contexts for clients and for other servers, and the certificate's fingerprint.

    Raise `ConfigurationError` if the files cannot be used.
    """
    try:
        state = files.state()
        for_clients, for_servers = _context(files), _context(files)
        if files.client_ca:
            for context in (for_clients, for_servers):
                context.load_verify_locations(files.client_ca)
            for_clients.verify_mode, for_servers.verify_mode = ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL
        return state, (for_clients, for_servers), _fingerprint(files.certificate)
    except ssl.SSLError as error:
        reason = _REASONS.get(error.reason or "", f"they cannot be used ({error.reason or error})")
    except (OSError, ValueError) as error:
        reason = f"they cannot be read ({getattr(error, 'strerror', None) or error})"
    named = " and ".join(filter(None, (files.certificate, files.key, files.client_ca)))
    raise ConfigurationError(f"The TLS files {named} are not valid: {reason}.")


_REASONS = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "NO_CERTIFICATE_OR_CRL_FOUND": "the file of client authorities holds no certificate",
    "PEM_LIB": "the certificate and the key must be PEM files",
}


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    # An empty password: asking for one at a terminal would block the server.
    context.load_cert_chain(files.certificate, files.key, password="")
    return context


def _fingerprint(path: str) -> str:
    text = Path(path).read_text("latin-1")
    begin = text.index(_BEGIN)
    return sha256(ssl.PEM_cert_to_DER_cert(text[begin : text.index(_END, begin) + len(_END)])).hexdigest()


async def keep_loaded(certificate: ServerCertificate) -> None:
    """Load the certificate again when its files change, and at SIGHUP."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ValueError, RuntimeError):
        # Only the main thread handles signals.
        loop.add_signal_handler(signal.SIGHUP, certificate.reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        certificate.reload_if_changed()
