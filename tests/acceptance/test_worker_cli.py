"""`lakelog worker module:log`: finds the client, works until SIGTERM, and reports what is missing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import lakelog
from tests.acceptance.cli_kit import LAKELOG, Cli
from tests.acceptance.client_kit import ThreadServer
from tests.kit.process import Command, Process
from tests.kit.waiting import eventually

SHOP = """
import asyncio, lakelog
log = lakelog.{connect}()
orders = log.topic("orders")

@orders.subscribe(group="billing", start_from="earliest", retries=0)
{handler}
    if order == "bad":
        raise ValueError("no such account")
    print("billed", order, flush=True)

@orders.subscribe(group="audit")
{handler}
    print("audited", order, flush=True)

empty = lakelog.connect()
number = 3
"""
RAISES = SHOP.splitlines().index('        raise ValueError("no such account")') + 1
HANDLERS = {"connect": "def bill(order):", "connect_async": "async def bill(order):"}


@pytest.mark.parametrize("connect", HANDLERS)
def test_it_works_until_sigterm(connect: str, http_server: ThreadServer, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/app.py").write_text(SHOP.format(connect=connect, handler=HANDLERS[connect]))
    with lakelog.connect(http_server.url) as log:
        orders = log.topic("orders")
        orders.create()
        for order in ("one", "bad", "two"):
            orders.publish(order)
        output = tmp_path / "output"
        command = Command(argv=[LAKELOG, "worker", "shop.app:log"], cwd=tmp_path, env={"LAKELOG_URL": http_server.url})
        process = Process(command, log_path=output)
        process.start()
        try:
            eventually(lambda: "billed two" in output.read_text(), within=30, what="all were run")
            eventually(lambda: "Group 'audit'" in output.read_text(), what="the other subscription has started")
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill9()
        said = output.read_text()
        assert "INFO orders/billing: worker started: member " in said and ", concurrency 1, prefetch automatic" in said
        assert "INFO SIGTERM received: finishing running handlers. Send it again to exit immediately.\n" in said
        assert "orders/billing: worker stopped: 2 acked, 1 failed, 1 dead-lettered, 0 released\n" in said
        assert said.count("ERROR orders/billing message 0:1 (text/plain): attempt 1 of 1 failed, dead letter (") == 1
        traceback = said[said.index("Traceback") :].splitlines()
        assert traceback[1].endswith(f'shop/app.py", line {RAISES}, in bill')
        assert traceback[3] == "ValueError: no such account" and "audited" not in said
        assert said.count("Group 'audit' is new to topic 'orders' and starts at its end: 3 existing messages") == 1
        assert log.group("billing").describe().members == () and orders.lag("billing") == 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop_missing:log", "Module 'shop_missing' was not found"),
        ("shop_cli", "module:name"),
        ("shop_cli:nothing", "no 'nothing'"),
        ("shop_cli:number", "is a int, not a client made by `lakelog.connect`"),
        ("shop_cli:empty", "has no subscriptions"),
        ("shop_broken:log", "cannot be imported: No module named 'not_there_at_all'"),
    ],
)
def test_it_says_what_is_missing(target: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "shop_cli.py").write_text(SHOP.format(connect="connect", handler="def bill(order):"))
    (tmp_path / "shop_broken.py").write_text("import not_there_at_all")
    done = Cli(folder=tmp_path, env={"LAKELOG_URL": "memory://"}).run("worker", target, code=1)
    assert said in done.err and len(done.err.splitlines()) == 1 and done.out == ""
