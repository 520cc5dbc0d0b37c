"""The supervisor: readiness, logs, kill -9, SIGSTOP, restart, and that nothing outlives a test run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.kit.ports import free_port
from tests.kit.process import NotReady, Process, Supervisor
from tests.kit.waiting import eventually

ROOT = Path(__file__).parents[3]
# Starts one child, then serves pages; on SIGTERM ends both with code 7.
SERVER = """
import http.server, os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
def end(*_):
    child.kill(); child.wait(); os._exit(7)
signal.signal(signal.SIGTERM, end)
print("serving as", os.environ["NAME"], "child", child.pid, flush=True)
http.server.test(HandlerClass=http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _start(supervisor: Supervisor) -> Process:
    port = free_port()
    argv = [sys.executable, "-c", SERVER, str(port)]
    return supervisor.start(argv, env={"NAME": "anna"}, ready=f"http://127.0.0.1:{port}/", name="server")


def test_kill9_ends_the_whole_tree_and_restart_serves_again() -> None:
    with Supervisor() as supervisor:
        server = _start(supervisor)
        pid, children = server.pid, [child.pid for child in server.children()]
        assert len(children) == 1
        assert "serving as anna" in server.log_text()
        assert server.rss() > 1_000_000

        server.kill9()
        assert server.returncode == -signal.SIGKILL
        assert not any(_alive(member) for member in [pid, *children])

        server.restart()
        assert server.running and server.pid != pid
        assert server.log_text().count("serving as anna") == 2


def test_terminate_gives_the_exit_code() -> None:
    with Supervisor() as supervisor:
        assert _start(supervisor).terminate() == 7


def test_a_stopped_process_keeps_its_socket_and_answers_after_cont() -> None:
    with Supervisor() as supervisor:
        server = _start(supervisor)
        port = int(server.command.argv[-1])
        server.stop()
        tree = [psutil.Process(server.pid), *server.children()]
        # The signal is sent; on a busy machine the process hears of it a moment later.
        eventually(lambda: {member.status() for member in tree} == {"stopped"}, what="all of it is stopped")
        with socket.create_connection(("127.0.0.1", port), timeout=0.3) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with pytest.raises(TimeoutError):
                connection.recv(1)
            server.cont()
            connection.settimeout(10)
            assert connection.recv(4) == b"HTTP"


def test_a_process_that_ends_or_never_serves_is_not_ready_and_its_log_is_shown() -> None:
    with Supervisor() as supervisor:
        with pytest.raises(NotReady, match=r"ended with 3(.|\n)*no such luck"):
            supervisor.start([sys.executable, "-c", "print('no such luck'); exit(3)"], ready=lambda: False)
        waiting = [sys.executable, "-c", "import signal; signal.pause()"]
        with pytest.raises(NotReady, match="not ready within"):
            supervisor.start(waiting, ready=f"tcp://127.0.0.1:{free_port()}", within=0.3)
        assert not supervisor.processes[-1].running


def test_leaving_the_supervisor_ends_everything_and_removes_its_logs() -> None:
    with Supervisor() as supervisor:
        server = _start(supervisor)
        tree = [server.pid, *(child.pid for child in server.children())]
        supervisor.processes[0].stop()
    assert not any(_alive(pid) for pid in tree)
    assert not supervisor.folder.exists()


def test_what_an_ended_process_left_behind_is_ended_too() -> None:
    leave = (
        "import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).pid)"
    )
    with Supervisor() as supervisor:
        process = supervisor.start([sys.executable, "-W", "ignore", "-c", leave])
        assert process.wait() == 0
        orphan = int(process.log_text())
        # Not before the end: a test may look for what a server leaves behind.
        assert _alive(orphan)
    assert not _alive(orphan)


def test_nothing_outlives_a_killed_test_run() -> None:
    run = """
import sys, time
from tests.kit.process import Supervisor
supervisor = Supervisor()
pause = "import signal; signal.pause()"
nest = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{pause}'], start_new_session=True); {pause}"
process = supervisor.start([sys.executable, "-c", nest])
while not process.children():
    time.sleep(0.01)
print(process.pid, process.children()[0].pid, supervisor.folder, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", run], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as inner:
        assert inner.stdout is not None
        leader, child, folder = inner.stdout.readline().split()
        assert _alive(int(leader)) and _alive(int(child)) and os.path.isdir(folder)
        inner.kill()
        inner.wait()
    eventually(lambda: not _alive(int(leader)) and not _alive(int(child)) and not os.path.exists(folder))
