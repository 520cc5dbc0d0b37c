"""The port for metrics on loopback: all environments without a token, and nothing for websites and other machines."""

from __future__ import annotations

import re

import pytest

from lakelog.engine.groups.figures import Figures, GroupFigures
from lakelog.errors import ConfigurationError
from lakelog.model.token import Right
from lakelog.server import ServerSettings
from lakelog.server.group_metrics import render_all
from lakelog.server.metrics_port import MetricsPort, listen_for_metrics, metrics_address
from lakelog.server.serving import run
from tests.kit.ports import free_port
from tests.unit.server.harness import ALL, World, world
from tests.unit.server.test_group_metrics import series
from tests.unit.server.wires import Wire


async def _scrape(made: World, path: str = "/v1/metrics", method: str = "GET", *headers: str) -> tuple[int, str]:
    assert made.app.metrics_port is not None
    wire = Wire(made.app.metrics_port)
    lines = "\r\n".join([f"{method} {path} HTTP/1.1", *(headers or ("host: localhost:9464",)), "", ""])
    head, _, body = (await wire.answers(lines.encode())).decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def test_the_series_of_all_environments_have_their_names() -> None:
    async with world() as made:
        for project, environment in (("default", "other"), ("shop", "default")):
            token = await made.make_token(ALL, scope=await made.other_scope(project, environment))
            assert (await made.call("POST", "/v1/topics", json={"name": "jobs"}, token=token)).status == 201
            ask = {"topic": "jobs", "group": "billing", "owner": "w1", "start_from": "earliest"}
            assert (await made.call("POST", "/v1/consume", json=ask, token=token)).status == 200
            await made.publish("jobs", {"value": 1}, token=token)
        status, page = await _scrape(made)
        assert status == 200
        found = series(page)
        for place in (
            'environment="other",group="billing",project="default"',
            'environment="default",group="billing",project="shop"',
        ):
            assert found[f"lakelog_group_members{{{place}}}"] == 0
            assert found[f'lakelog_group_lag_messages{{{place},topic="jobs"}}'] == 1
        # The same names as for a token, which sees one environment.
        token = await made.make_token(frozenset({Right.METRICS}), scope=await made.other_scope("shop", "default"))
        of_token = (await made.call("GET", "/v1/metrics", token=token)).body.decode()
        assert set(re.findall(r"^# TYPE (\S+)", of_token, re.MULTILINE)) == set(
            re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
        )
        assert "project" not in of_token


async def test_other_requests_are_refused() -> None:
    async with world() as made:
        assert (await _scrape(made, "/v1/metrics", "GET", "host: evil.example"))[0] == 403
        assert (await _scrape(made, "/v1/metrics", "GET", "host: localhost", "origin: https://evil.example"))[0] == 403
        assert (await _scrape(made, "/v1/topics"))[0] == 404
        assert (await _scrape(made, "/metrics"))[0] == 404
        assert (await _scrape(made, "/v1/metrics", "POST"))[0] == 405


async def test_a_failure_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        async def every_environment(self) -> bytes:
            raise RuntimeError("secret")

    async with world() as made:
        monkeypatch.setattr(made.app, "metrics_port", MetricsPort(Broken()))  # type: ignore[arg-type]
        status, body = await _scrape(made)
        assert status == 500 and "secret" not in body


def test_the_page_of_all_environments_is_bounded() -> None:
    figures = Figures(
        groups=[
            GroupFigures(group=f"g{n}", members=1, dead_letters=0, rebalances=0, rebalancing_seconds=0)
            for n in range(3)
        ]
    )
    found = series(render_all({("a", "x"): figures, ("b", "x"): figures}, most=16).decode())
    assert len(found) == 17 and found["lakelog_group_series_left_out"] == 8


@pytest.mark.parametrize(
    ("text", "host"), [("127.0.0.1:9464", "127.0.0.1"), ("127.0.0.2:1", "127.0.0.2"), ("[::1]:9464", "::1")]
)
def test_addresses_on_loopback(text: str, host: str) -> None:
    assert metrics_address(text)[1:] == (host, int(text.rpartition(":")[2]))


@pytest.mark.parametrize("text", ["0.0.0.0:9464", "10.0.0.5:9464", "[::]:9464"])
def test_an_address_that_is_not_loopback_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="on loopback only"):
        metrics_address(text)
    with pytest.raises(ConfigurationError, match="on loopback only"):
        run(None, ServerSettings(metrics_listen=text))  # type: ignore[arg-type]


WITHOUT_PORT = [
    "9464",
    "127.0.0.1",
    "127.0.0.1:",
    "127.0.0.1:0",
    "127.0.0.1:99999",
    ":9464",
    "127.0.0.1:1/x",
    "u@[::1]:1",
]


@pytest.mark.parametrize("text", WITHOUT_PORT)
def test_an_address_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="needs an address and a port"):
        metrics_address(text)


def test_a_port_in_use() -> None:
    address = f"127.0.0.1:{free_port()}"
    with listen_for_metrics(address), pytest.raises(ConfigurationError, match="--metrics-listen"):
        listen_for_metrics(address)
