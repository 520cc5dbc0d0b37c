"""TLS of the client: the files that name trusted authorities and the client's own certificate, and its errors."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from lakelog.errors import ConfigurationError

CA_FILE = "LAKELOG_CA_FILE"
CLIENT_CERTIFICATE, CLIENT_KEY = "LAKELOG_CLIENT_CERTIFICATE", "LAKELOG_CLIENT_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of a client."""

    ca: str | None = None
    """The authorities to trust; None for those of the operating system."""
    certificate: str | None = None
    """The client's certificate, for servers that require one. The file may hold the key too."""
    key: str | None = None

    def state(self) -> tuple[int, ...]:
        """Return a value that changes when one of the files is replaced."""
        return tuple(os.stat(path).st_mtime_ns for path in (self.ca, self.certificate, self.key) if path)


NO_FILES = TlsFiles()


def find_tls_files(ca: str | None = None, certificate: str | None = None, key: str | None = None) -> TlsFiles:
    """Return the files from the arguments or the environment."""
    return TlsFiles(
        ca=ca or os.environ.get(CA_FILE) or None,
        certificate=certificate or os.environ.get(CLIENT_CERTIFICATE) or None,
        key=key or os.environ.get(CLIENT_KEY) or None,
    )


_contexts: dict[TlsFiles, tuple[tuple[int, ...], ssl.SSLContext]] = {}


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of new connections. A replaced file is loaded again."""
    try:
        state = files.state()
        if files in _contexts and _contexts[files][0] == state:
            return _contexts[files][1]
        context = ssl.create_default_context(cafile=files.ca)
        if files.certificate:
            # An empty password: asking for one at a terminal would block the client.
            context.load_cert_chain(files.certificate, files.key, password="")
    except OSError as exc:
        # TLS errors are errors of the operating system too.
        reason = getattr(exc, "reason", None) or exc.strerror or exc
        named = " or ".join(filter(None, (files.ca, files.certificate, files.key)))
        raise ConfigurationError(
            f"Cannot load {named}: {reason}. Check {CA_FILE}, {CLIENT_CERTIFICATE} and {CLIENT_KEY}, or the arguments."
        ) from exc
    _contexts[files] = (state, context)
    return context


def refusal_of(exc: ssl.SSLError, address: str, files: TlsFiles) -> str:
    """Return why one side refused the other for good, and what to do; empty if a retry can help."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"The certificate of {address} {_fault_of(exc, files)}"
    reason = exc.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return f"The server at {address} does not use TLS. Use http:// instead of https://."
    if not files.certificate and reason.endswith(("ALERT_CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE")):
        return f"The server at {address} requires a client certificate. Set {CLIENT_CERTIFICATE} and {CLIENT_KEY}."
    if files.certificate and "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        said = reason.lower().replace("_", " ")
        return (
            f"The server at {address} refused the client certificate {files.certificate} ({said}). Use one that an "
            "authority of the server issued and that has not expired."
        )
    return ""


def hint_for(files: TlsFiles | None) -> str:
    """Return what to check if a server closes a new connection at the first request. `files` is None without TLS."""
    if files is None:
        return "If the server uses TLS, use https://."
    if files.certificate is None:
        return f"If the server requires a client certificate, set {CLIENT_CERTIFICATE} and {CLIENT_KEY}."
    return f"Check that the server accepts the client certificate {files.certificate}."


def _fault_of(exc: ssl.SSLCertVerificationError, files: TlsFiles) -> str:
    match exc.verify_code:
        case 10:
            return "has expired. Renew it; a server loads a new certificate without a restart."
        case 9:
            return "is not valid yet. Check the clocks of both machines."
        case 62 | 64:
            return "is for another host name. Use a name that the certificate has, or add this name to the certificate."
        case 18 | 19 | 20 | 21:
            known = f"in {files.ca}" if files.ca else "that this machine trusts"
            return (
                f"is from none of the authorities {known}. Set {CA_FILE} or `ca_file` to a PEM file with the authority "
                "that issued it."
            )
    return f"is not trusted: {exc.verify_message}."
