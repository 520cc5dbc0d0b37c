"""Publishing while servers and PostgreSQL are killed and responses are lost: S1 to S7 hold.

Full size: 200,000 calls, one message each, from 32 processes to two servers. 2026-11-15, 2 cores: 133,343 messages,
9,563 calls of unknown outcome, 19 to 35 calls in flight at the five kills of a server; no violation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from prove.history.loading import load_files
from prove.history.tables import CallOutcome
from tests.faults.crews import assert_log_valid, with_truth
from tests.faults.publisher import THREADS, Board, Plan
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.size import Size
from tests.kit.waiting import eventually

PROCESSES = 32
KILLS = 5
LOST_ANSWERS = 0.002


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_every_acked_message_is_there_once_at_its_offset(size: Size, tmp_path: Path) -> None:
    """S1-S7. Idempotency keys with a third of repeats, some keyless, some at the other server."""
    total = size.pick(ci=20_000, full=200_000)
    folder = tmp_path / "history"
    folder.mkdir()
    with Cluster() as cluster, Fleet(cluster) as fleet, Supervisor() as clients:
        fleet.create_topic("orders", 4)
        for seed, proxy in enumerate(fleet.proxies):
            # A tenth of the calls loses ten times as many responses, so that both sizes have some hundred.
            proxy.drop_answers(probability=LOST_ANSWERS * size.pick(ci=10, full=1), seed=seed)
        board = Board(str(tmp_path / "board"), PROCESSES * THREADS)
        processes = [start(clients, fleet, board, folder, tmp_path, number, total) for number in range(PROCESSES)]

        in_flight = []
        for kill in range(KILLS):
            reach(board, processes, total * (kill + 1) // (KILLS + 2))
            server = kill % len(fleet.servers)
            # Stopped first: the number of calls in flight must not depend on the speed of this machine.
            fleet.servers[server].stop()
            in_flight.append(eventually(lambda server=server: at_least(16, board.in_flight(server)), within=30))
            fleet.servers[server].kill9()
            fleet.servers[server].restart()
        reach(board, processes, total * (KILLS + 1) // (KILLS + 2))
        cluster.kill9()
        cluster.start()

        eventually(lambda: not any(process.running for process in processes), within=900, every=0.5)
        failed = [process for process in processes if process.returncode != 0]
        assert not failed, failed[0].log_text()[-2000:]

        final = fleet.read_all("orders")
        history = with_truth(load_files(folder), final)
        unknown = int((history.tables["attempt"].outcome == CallOutcome.INFO).sum())
        messages = len(final["seen"])
        print(f"{total} calls, {messages} messages, {unknown} of unknown outcome, in flight at kills: {in_flight}")
        assert unknown >= 100
        assert_log_valid(history)


def start(
    clients: Supervisor, fleet: Fleet, board: Board, folder: Path, tmp_path: Path, number: int, total: int
) -> Process:
    plan = Plan(
        topic="orders",
        ports=[proxy.port for proxy in fleet.proxies],
        calls=total // (PROCESSES * THREADS),
        seed=number,
        name=f"c{number}",
        folder=str(folder),
        board=str(tmp_path / "board"),
        slot=number,
    )
    argv = [sys.executable, "-m", "tests.faults.publisher", msgspec.json.encode(plan).decode(), str(board.slots)]
    return clients.start(argv, name="client")


def reach(board: Board, processes: list[Process], calls: int) -> None:
    """Wait for this number of calls; a client that fails ends the test immediately."""

    def reached() -> bool:
        for process in processes:
            assert process.running or process.returncode == 0, process.log_text()[-2000:]
        return board.done() >= calls

    eventually(reached, within=600, every=0.05)


def at_least(minimum: int, count: int) -> int:
    return count if count >= minimum else 0
