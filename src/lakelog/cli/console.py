"""`lakelog console`: serves the web console in a process of its own, in front of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelog.cli.output import print_line
from lakelog.cli.target import UrlOption, find_target
from lakelog.errors import ConfigurationError


def console(
    url: UrlOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8090,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="PEM file with the certificate, for https://.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="PEM file with the certificate's key.")] = None,
) -> None:
    """Serve the web console for a server, until Ctrl-C.

    Each viewer logs in with a token. The console itself has none.
    """
    from lakelog.console.serving import TlsFiles, listen, serve

    target = find_target(url, "")
    if not target.is_http:
        raise ConfigurationError("The console needs the URL of a server, such as http://127.0.0.1:8080.")
    if (tls_certificate is None) != (tls_key is None):
        raise ConfigurationError("TLS needs both files: --tls-certificate and --tls-key.")
    files = TlsFiles(tls_certificate, tls_key) if tls_certificate and tls_key else None
    listener = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    print_line(f"Console of {target.place}: {'https' if files else 'http'}://{name}:{listener.getsockname()[1]}/")
    serve(target, listener, files)
