"""Certificates for tests: an authority of their own, and certificates that it issues, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path

    def replace_by(self, other: Issued) -> None:
        """Write the other certificate and key over these files, one after the other."""
        shutil.copyfile(other.certificate, self.certificate)
        shutil.copyfile(other.key, self.key)

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables of a server with this certificate."""
        return {"LAKELOG_TLS_CERTIFICATE": str(self.certificate), "LAKELOG_TLS_KEY": str(self.key)}


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        files = ("-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *_KEY, *files, "-days", "2", "-subj", f"/CN=Lakelog test {name}")

    def issue(self, name: str, hosts: Sequence[str] = ("localhost", "127.0.0.1"), *, days: int = 2) -> Issued:
        """Return a certificate for these hosts. With a negative number of days, it has expired."""
        made = Issued(certificate=self._folder / f"{name}.pem", key=self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(map(_alternative, hosts))}\n")
        _openssl("req", "-new", *_KEY, "-keyout", str(made.key), "-out", str(request), "-subj", f"/CN={name}")
        issuer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        files = ("-in", str(request), "-out", str(made.certificate), "-extfile", str(extensions))
        _openssl("x509", "-req", *issuer, *files, "-days", str(days))
        return made


def _alternative(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
