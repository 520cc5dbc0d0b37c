"""`lakelog consume` as a shell runs it: in a pipe, before `head`, and killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog
from tests.acceptance.cli_kit import Cli
from tests.acceptance.client_kit import ThreadServer
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(120)
COUNT = 300
CONSUME = ("consume", "orders", "--group", "g", "--json", "--from", "earliest")


@pytest.fixture
def cli(http_server: ThreadServer, tmp_path: Path) -> Cli:
    return Cli(folder=tmp_path, env={"LAKELOG_URL": http_server.url, "LAKELOG_TOKEN": ""})


@pytest.fixture
def orders(http_server: ThreadServer) -> Iterator[lakelog.Topic[int]]:
    with lakelog.connect(http_server.url, token="") as log:
        topic = log.topic("orders", type=int)
        topic.create(partitions=2)
        topic.publish_many([lakelog.Outgoing(n, partition=n % 2) for n in range(COUNT)])
        yield topic


def values(lines: bytes) -> list[int]:
    return [json.loads(line)["value"] for line in lines.splitlines()]


def test_what_was_printed_is_acked(cli: Cli, orders: lakelog.Topic[int]) -> None:
    done = cli.spawn(*CONSUME, "--limit", str(COUNT))
    assert sorted(line["value"] for line in done.lines) == list(range(COUNT))
    assert done.err == f"{COUNT} messages consumed.\n"
    assert orders.lag("g") == 0
    assert cli.spawn(*CONSUME, "--wait", "0.1").err == "0 messages consumed.\n"


def test_a_limit_gives_back_the_rest(cli: Cli, orders: lakelog.Topic[int]) -> None:
    assert len(cli.spawn(*CONSUME, "--limit", "120").lines) == 120
    assert orders.lag("g") == COUNT - 120
    text = cli.spawn("consume", "orders", "--group", "g", "--limit", str(COUNT - 120)).out
    assert len(text.splitlines()) == COUNT - 120


def test_what_a_reader_that_ends_has_not_read_is_given_back_within_a_second(
    cli: Cli, orders: lakelog.Topic[int]
) -> None:
    with (
        cli.popen(*CONSUME) as command,
        subprocess.Popen(["head", "-n", "100"], stdin=command.stdout, stdout=subprocess.PIPE) as head,
        lakelog.connect(cli.env["LAKELOG_URL"], token="") as log,
    ):
        assert command.stdout is not None
        command.stdout.close()
        printed, _ = head.communicate(timeout=30)
        ended = time.monotonic()
        eventually(lambda: not any(each.leases for each in log.group("g").describe().progress))
        took = time.monotonic() - ended
        assert command.wait(10) == 0
        assert len(values(printed)) == 100
        # Exactly what was printed: the command hands over one line at a time.
        assert orders.lag("g") == COUNT - 100
        assert took < 10.0, "far below the time of the leases"
        with log.consumer("orders", group="g") as consumer:
            rest = consumer.batch(COUNT - 100, timeout=20, least=COUNT - 100)
            assert sorted(values(printed) + rest.values) == list(range(COUNT))
            assert {each.failures for each in rest} == {0}


def test_a_killed_command_loses_nothing(cli: Cli, orders: lakelog.Topic[int]) -> None:
    with cli.popen(*CONSUME, "--lease", "1") as command:
        assert command.stdout is not None
        printed = [command.stdout.readline() for _ in range(150)]
        command.kill()
        rest = command.stdout.read()
    # Its last ack may arrive after this: then there are fewer messages.
    again = cli.spawn(*CONSUME, "--limit", str(orders.lag("g")), "--wait", "20")
    seen = set(values(b"".join(printed) + rest)) | {line["value"] for line in again.lines}
    assert seen == set(range(COUNT))
    assert orders.lag("g") == 0


def test_a_group_is_needed(cli: Cli) -> None:
    assert "--group" in cli.run("consume", "orders", code=2).err
