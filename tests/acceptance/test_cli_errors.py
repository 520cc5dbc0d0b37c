"""Errors of the command line: one or two lines with the next step, and the exit code."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.acceptance.cli_kit import Cli, Dev, dev, open_folder
from tests.kit.ports import free_port

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def started() -> Iterator[Dev]:
    with open_folder() as folder, dev(folder) as started:
        yield started


@pytest.fixture
def stray() -> Iterator[Cli]:
    """Return a command line in an empty folder."""
    with open_folder() as folder:
        yield Cli(folder=folder, env={})


@contextmanager
def stub(status: int, body: bytes) -> Iterator[str]:
    """Yield the URL of a web server that returns the same response to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/problem+json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_no_server(stray: Cli) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for arguments in (
        ["topics", "list"],
        ["tail", "t"],
        ["fetch", "t"],
        ["publish", "t", "--value", "x"],
        ["publish", "t"],
    ):
        done = stray.run(*arguments, "--url", url, code=4)
        assert url in done.err and "--url" in done.err and "lakelog dev" in done.err
        assert len(done.err.splitlines()) == 2 and done.out == ""
    assert done.err == (
        f"lakelog: Cannot connect to {url}: connection refused.\n"
        "         Start a server with `lakelog dev` or `lakelog serve`, or give --url.\n"
    )


def test_a_server_that_does_not_answer_is_announced(stray: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = stray.popen("topics", "list", "--url", url)
        try:
            assert process.stderr
            assert process.stderr.readline().decode() == f"Waiting for {url}: no response yet. Ctrl-C to stop.\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
            process.communicate()


@pytest.mark.nightly
def test_the_error_for_a_missing_database_does_not_say_to_start_the_server(stray: Cli) -> None:
    """The stub responds as a server does while PostgreSQL is down."""
    problem = b'{"code":"unavailable","detail":"PostgreSQL cannot be reached: why.","unreachable":"database"}'
    with stub(503, problem) as url:
        process = stray.popen("topics", "list", "--url", url)
        try:
            assert process.stderr
            waiting = process.stderr.readline().decode()
            assert waiting == f"Waiting for {url}: PostgreSQL cannot be reached: why. Ctrl-C to stop.\n"
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 4
    assert said.decode() == (
        f"lakelog: The server at {url} is not available: PostgreSQL cannot be reached: why.\n"
        "         The server is running, but it cannot reach its database. Retry later, or look at the server's log.\n"
    )


def test_wrong_token(started: Dev, stray: Cli) -> None:
    done = started.cli.run("topics", "list", "--token", "lkl_wrong", code=1)
    assert "tokens create" in done.err and "came from --token" in done.err
    missing = stray.run("topics", "list", "--url", started.url, code=1)
    assert "--token" in missing.err and "LAKELOG_TOKEN" in missing.err


def test_a_right_that_is_missing(started: Dev) -> None:
    secret = started.cli.run("tokens", "create", "--name", "reader", "--rights", "read", "--json").json["secret"]
    assert "manage" in started.cli.run("topics", "create", "x", "--token", secret, code=1).err
    started.cli.run("topics", "list", "--token", secret)


def test_no_topic(started: Dev) -> None:
    for arguments in (
        ["fetch", "nope"],
        ["tail", "nope"],
        ["publish", "nope", "--value", "x"],
        ["topics", "describe", "nope"],
    ):
        done = started.cli.run(*arguments, code=3)
        assert "lakelog topics create nope" in done.err and len(done.err.splitlines()) == 1
    assert "nope" in started.cli.run("publish", "nope", stdin="x\n", code=3).err


def test_usage(started: Dev) -> None:
    assert "duration" in started.cli.run("topics", "create", "x", "--max-age", "7days", code=2).err
    assert "size" in started.cli.run("topics", "create", "x", "--max-bytes", "much", code=2).err
    assert "NAME=TEXT" in started.cli.run("publish", "x", "--value", "v", "--header", "h", code=2).err
    assert "cannot be read" in started.cli.run("publish", "x", "no-such-file", code=2).err
    assert "a-z" in started.cli.run("topics", "create", "Not A Name", code=1).err
    assert "No such command" in started.cli.run("topic", "list", code=2).err
    assert "not both" in started.cli.run("publish", "x", "file", "--value", "v", code=2).err


def test_debug_shows_where_it_came_from(started: Dev) -> None:
    assert "Traceback" not in started.cli.spawn("fetch", "nope", code=3).err
    debugged = started.cli.spawn("--debug", "fetch", "nope", code=None)
    assert debugged.code != 0 and "Traceback" in debugged.err and "TopicNotFound" in debugged.err


def test_tokens_from_birth_to_death(started: Dev) -> None:
    cli = started.cli
    made = cli.run("tokens", "create", "--name", "job", "--rights", "read,publish", "--expires", "90d", "--json").json
    assert made["rights"] == ["read", "publish"] and made["secret"].startswith("lkl_") and made["expires_at"]
    cli.run("topics", "list", "--token", made["secret"])
    listed = cli.run("tokens", "list")
    assert made["id"] in listed.out and made["secret"] not in listed.out
    assert made["secret"] not in cli.run("tokens", "list", "--json").out
    cli.run("tokens", "revoke", made["id"])
    assert "tokens list" in cli.run("tokens", "revoke", made["id"], code=3).err
    assert made["id"] not in cli.run("tokens", "list").out
    shown = cli.run("tokens", "create", "--name", "other", "--project", "p", "--environment", "e")
    assert "lkl_" in shown.out and "cannot be shown again" in shown.err
    assert "other" in cli.run("tokens", "list", "--project", "p", "--environment", "e").out
    child = cli.run(
        "tokens", "create", "--child", "--name", "night", "--rights", "inspect", "--expires", "1h", "--json"
    )
    assert child.json["parent"] and child.json["rights"] == ["inspect"]
    assert child.json["id"] in cli.run("tokens", "list", "--child").out
    assert "lacks" not in cli.run("groups", "list", "--token", child.json["secret"]).err
    cli.run("tokens", "revoke", "--child", child.json["id"])
    assert child.json["id"] not in cli.run("tokens", "list", "--child").out
    assert "read, publish, manage" in cli.run("tokens", "create", "--name", "x", "--rights", "all", code=2).err


def test_environments_do_not_see_each_other(started: Dev) -> None:
    cli = started.cli
    rights = ("--rights", "read,publish,manage", "--json")
    secret = cli.run("tokens", "create", "--name", "other", "--project", "elsewhere", *rights).json["secret"]
    cli.run("topics", "create", "mine")
    assert cli.run("topics", "list", "--token", secret, "--json").json == {"topics": []}
    cli.run("fetch", "mine", "--token", secret, code=3)


def test_a_database_has_to_be_named(stray: Cli) -> None:
    for arguments in (["migrate"], ["serve"], ["tokens", "list"]):
        done = stray.run(*arguments, code=2)
        assert "LAKELOG_DATABASE_URL" in done.err and "--database-url" in done.err
    assert "postgresql://" in stray.run("migrate", "--database-url", "mysql://x", code=2).err
