"""`lakelog doctor`: the answers of a server that is none of Lakelog's, and the commands of remedies."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from lakelog.cli.app import app
from lakelog.cli.doctor import _given


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


def test_the_commands_of_remedies_have_no_passwords() -> None:
    given = _given(
        "postgresql://app:secret@db/log?password=secret&sslmode=require&sslpassword=secret",
        ["eu=postgresql://app:secret@eu/log?password=secret"],
    )
    assert given == " --database-url 'postgresql://app@db/log?sslmode=require' --cell eu=postgresql://app@eu/log"
