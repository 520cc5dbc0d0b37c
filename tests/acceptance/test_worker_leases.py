"""Leases of a worker last while it works, independent of its handler, and end when it dies or is suspended."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

import lakelog
from lakelog.client.values import Consumed
from lakelog.model.lease import ConsumeRequest
from tests.acceptance.client_kit import ThreadServer
from tests.acceptance.worker_program import LEASE, SECONDS
from tests.kit.process import Command, Process
from tests.kit.waiting import eventually

PROGRAM = Path(__file__).with_name("worker_program.py")


@pytest.fixture(params=["http", pytest.param("postgresql", marks=pytest.mark.nightly)])
def place(request: pytest.FixtureRequest) -> str:
    """Return a URL where another process can reach the messages."""
    if request.param == "http":
        server: ThreadServer = request.getfixturevalue("http_server")
        return server.url
    database: str = request.getfixturevalue("migrated_database")
    return database


class Scene:
    """A worker that has started to handle the one message of a topic."""

    def __init__(self, url: str, mode: str, folder: Path) -> None:
        self.url = url
        self.log = lakelog.connect(url)
        topic = self.log.topic("work")
        topic.create()
        topic.publish(b"one", key="k")
        self.output = folder / "worker.log"
        self.process = Process(Command(argv=[sys.executable, str(PROGRAM), url, mode]), log_path=self.output)

    def __enter__(self) -> Scene:
        self.process.start()
        eventually(lambda: "begun 0" in self.said, within=20, what="the handler began")
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.running:
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill9()
        self.log.close()

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def keeper(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        # Until exec it shows the command line of its parent.
        eventually(lambda: "lakelog.client.worker.keeper_process" in child.cmdline(), what="the keeper has started")
        assert self.url not in " ".join(child.cmdline())
        return child

    def taken_over(self, seconds: float) -> Consumed:
        """Return what another owner receives within the time."""
        wish = ConsumeRequest(
            topic="work", group="group", owner="other", request_id="r", wait_ms=int(seconds * 1000), isolates=True
        )
        return self.log.group("group").consume(wish)


@pytest.mark.parametrize("mode", ["holds", "blocks-the-loop"])
def test_a_lease_is_kept_while_nothing_else_of_the_worker_can_run(place: str, mode: str, tmp_path: Path) -> None:
    """S8: not leased to another owner although the handler takes longer than two leases, and its ack is accepted."""
    with Scene(place, mode, tmp_path) as scene:
        assert scene.taken_over(SECONDS - 0.5).leases == []
        eventually(lambda: "ended 0" in scene.said, what="the handler ended")
        eventually(lambda: scene.log.group("group").lag() == 0, what="it was acked")
        assert scene.said.count("begun") == 1


def test_a_killed_workers_message_is_redelivered_in_time(place: str, tmp_path: Path) -> None:
    """L5: within its lease + 2 s; and the process that keeps its leases has ended."""
    with Scene(place, "sleeps", tmp_path) as scene:
        eventually(lambda: time.monotonic() - scene.begun > LEASE, what="the lease was extended at least once")
        keeper = scene.keeper
        os.kill(scene.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        (lease,) = scene.taken_over(LEASE + 4).leases
        assert lease.suspect and time.monotonic() - killed < LEASE + 2
        eventually(lambda: not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE, what="it is gone")


def test_a_stopped_workers_lease_ends(place: str, tmp_path: Path) -> None:
    """Its extensions stop within a third of the lease, although the process that keeps its leases still runs."""
    with Scene(place, "sleeps", tmp_path) as scene:
        eventually(lambda: time.monotonic() - scene.begun > LEASE, what="the lease was extended at least once")
        os.kill(scene.process.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        assert scene.keeper.is_running()
        (lease,) = scene.taken_over(2 * LEASE + 4).leases
        assert lease.suspect and time.monotonic() - stopped < LEASE * 4 / 3 + 2


def test_a_lease_is_not_kept_beyond_the_handlers_time(place: str, tmp_path: Path) -> None:
    """The handler holds the interpreter lock forever: the worker cannot report it, but its lease still ends."""
    with Scene(place, "holds-for-ever", tmp_path) as scene:
        (lease,) = scene.taken_over(2.0 + 2 * LEASE + 4).leases
        assert lease.suspect and time.monotonic() - scene.begun > 2.0


def test_a_keeper_that_is_killed_is_started_again(http_server: ThreadServer, tmp_path: Path) -> None:
    with Scene(http_server.url, "sleeps", tmp_path) as scene:
        first = scene.keeper
        first.kill()
        parent = psutil.Process(scene.process.pid)
        eventually(lambda: any(child.pid != first.pid for child in parent.children()), what="another was started")
        assert scene.keeper.pid != first.pid


def test_sigterm_lets_handlers_finish_and_a_second_one_exits_immediately(
    http_server: ThreadServer, tmp_path: Path
) -> None:
    with Scene(http_server.url, "sleeps", tmp_path) as scene:
        os.kill(scene.process.pid, signal.SIGTERM)
        assert scene.taken_over(2 * LEASE).leases == [], "it is not given up, and its lease is kept"
        os.kill(scene.process.pid, signal.SIGTERM)
        assert scene.process.wait(timeout=20) == -signal.SIGTERM
        assert "stopped" not in scene.said
