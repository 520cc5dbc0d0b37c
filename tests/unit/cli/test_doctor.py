"""`lakelog doctor --url`: the answers of a server that is none of Lakelog's."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from lakelog.cli.app import app


@pytest.mark.parametrize(("status", "body"), [(502, b"<h1>Bad Gateway</h1>"), (404, b'{"detail": "Not Found"}')])
def test_another_server_is_reported_without_a_traceback(status: int, body: bytes) -> None:
    """A proxy in front of a server that is down, or another program."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        result = CliRunner().invoke(
            app, ["doctor", "--url", f"http://127.0.0.1:{server.server_port}"], prog_name="lakelog"
        )
        answering.join()
    assert result.exit_code == 4
    assert f"returned {status}, but the response is not from Lakelog" in " ".join(result.stderr.split())
