"""Connections to other servers. TLS connections recognise a server by the certificate that it has announced.

The certificate of a server is issued for the name that clients use. Servers call each other by address, and know each
other from the catalog. Its hash, from the catalog, is therefore compared instead of its name and its authority.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ssl
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address

_TLS = "tls://"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WrongCertificate(OSError):
    """The server has another certificate than the announced one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddress:
    """The address at which other servers reach a server: `host:port`, or `tls://host:port/` and a fingerprint."""

    host: str
    port: int
    fingerprint: str = ""
    """The SHA-256 hash of the certificate; empty without TLS."""

    @classmethod
    def parse(cls, text: str) -> PeerAddress:
        """Return the address. Raise `ValueError` if the text is none."""
        place, _, fingerprint = text.removeprefix(_TLS).partition("/")
        host, _, port = place.rpartition(":")
        if bool(fingerprint) != text.startswith(_TLS):
            raise ValueError(f"{text!r} is not the address of a server")
        return cls(host=host.strip("[]"), port=int(port), fingerprint=fingerprint)

    def __str__(self) -> str:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"{_TLS}{place}/{self.fingerprint}" if self.fingerprint else place

    @property
    def is_loopback(self) -> bool:
        with contextlib.suppress(ValueError):
            return ip_address(self.host).is_loopback
        return self.host == "localhost"


async def open_peer(address: PeerAddress) -> Connection:
    """Return a connection to a server. Raise `WrongCertificate` if its certificate is not the announced one."""
    if not address.fingerprint:
        return await asyncio.open_connection(address.host, address.port)
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=_context())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
    if not hmac.compare_digest(sha256(shown).hexdigest(), address.fingerprint):
        writer.close()
        raise WrongCertificate("The server shows another certificate than it announced.")
    return reader, writer


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
