"""The API and its worker against an installation in memory."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from orders_api.api import app
from orders_api.worker import bill

from lakelog.testing import MemoryInstallation


@pytest.fixture
def api(lakelog_memory: MemoryInstallation) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def test_an_order_is_published_and_billed(
    api: TestClient, lakelog_memory: MemoryInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = api.post("/orders", json={"account": "a1", "total": 30})
    assert placed.status_code == 202
    lakelog_memory.assert_published("orders", count=1, key="a1")
    assert lakelog_memory.drain(bill).acked == 1
    assert capsys.readouterr().out == "billed 30 to a1\n"
    assert api.get(f"/messages/{placed.json()['id']}").json() == {"billing": "finished"}


def test_a_repeated_request_publishes_once(api: TestClient, lakelog_memory: MemoryInstallation) -> None:
    answers = [
        api.post("/orders", json={"account": "a1", "total": 30}, headers={"Idempotency-Key": "r1"}).json()
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    lakelog_memory.assert_published("orders", count=1)


def test_an_order_that_cannot_be_billed_becomes_a_dead_letter(
    api: TestClient, lakelog_memory: MemoryInstallation
) -> None:
    placed = api.post("/orders", json={"account": "a1", "total": -1}).json()
    for _ in range(4):
        lakelog_memory.drain(bill)
        lakelog_memory.clock.advance(minutes=5)
    assert api.get(f"/messages/{placed['id']}").json() == {"billing": "dead"}
    assert api.get("/messages/99-0-0").status_code == 404
    assert api.post("/orders", json={"account": "a1"}).status_code == 422
