"""The process of a hostile tenant: it attacks a server, reports its figures, and removes its topics."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import msgspec

from prove.hostile.tenant import HostileFigures, HostilePlan, progress_file
from tests.integration.servers import OTHER_TOKEN, running
from tests.kit.process import Supervisor
from tests.kit.waiting import eventually


def test_a_hostile_tenant_is_limited_and_another_one_is_served(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    with running(memory_bytes=64 << 20, max_connections_per_address=60) as server, Supervisor(tmp_path) as supervisor:
        plan = HostilePlan(
            token=OTHER_TOKEN,
            ports=[server.port],
            figures=str(figures),
            addresses=("127.0.0.2",),
            polls=40,
            slow=30,
            unread=6,
            partitions=20,
            filters=1,
            expansions=1,
        )
        argv = [sys.executable, "-m", "prove.hostile.tenant", msgspec.json.encode(plan).decode()]
        tenant = supervisor.start(argv)
        progress = progress_file(plan.figures)
        try:
            with server.client(OTHER_TOKEN) as other, server.client() as client:
                names = {"polled", "filtered", "expanding", "wide-0"}
                eventually(lambda: len(other.get("/v1/topics").json()["topics"]) == len(names), within=60)
                assert client.post("/v1/topics", json={"name": "orders"}).status_code == 201
                for _ in range(20):
                    _publish(client)
                # A tenant that ends too early has not reached a limit yet.
                eventually(lambda: _publish(client) and _reaches_limits(_read(progress)), within=60)
                assert tenant.terminate() == 0
                assert other.get("/v1/topics").json()["topics"] == []
            assert _read(figures).errors == 0
        except Exception as error:
            error.add_note(f"The figures of the tenant so far: {progress.exists() and _read(progress)}")
            error.add_note(f"Its output:\n{tenant.log_path.read_text()}")
            raise


def _publish(client: httpx.Client) -> bool:
    answer = client.post("/v1/topics/orders/messages", json={"messages": [{"value": 1}]})
    assert answer.status_code == 200, answer.text
    return True


def _read(path: Path) -> HostileFigures:
    return msgspec.json.decode(path.read_bytes(), type=HostileFigures)


def _reaches_limits(found: HostileFigures) -> bool:
    return found.partitions == 20 and found.polling > 0 and found.read_bytes > 0 and found.limited > 0
