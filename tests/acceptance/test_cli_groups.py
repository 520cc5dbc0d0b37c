"""Groups and dead letters from the command line, through a server and directly on a database."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import lakelog
from tests.acceptance.cli_kit import LAKELOG, Cli
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(120)

GROUP, TOPIC = "billing", "orders"


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster, servers=1) as started:
        yield started


@pytest.fixture(params=["http", "postgresql"])
def cli(request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Cli:
    """Return a command line for each URL; both lead to the same database."""
    url = fleet.url if request.param == "postgresql" else f"http://127.0.0.1:{fleet.ports[0]}"
    return Cli(folder=tmp_path, env={"LAKELOG_URL": url})


@pytest.fixture
def log(cli: Cli) -> Iterator[lakelog.Lakelog]:
    """Yield a client of the same database, with an empty topic and no group."""
    with lakelog.connect(cli.env["LAKELOG_URL"]) as opened:
        opened.topic(TOPIC).create(partitions=2)
        yield opened
        opened.topic(TOPIC).delete()
        for group in opened.groups():
            opened.group(group.name).delete()


def publish(log: lakelog.Lakelog, count: int, **headers: str) -> None:
    for n in range(count):
        log.topic(TOPIC).publish({"n": n}, partition=n % 2, headers=headers or None)


def work(cli: Cli, *, fails: bool, until: Any, group: str = GROUP) -> None:
    """Run a worker of the group on the whole topic until the condition is met."""
    with lakelog.connect(cli.env["LAKELOG_URL"]) as log:

        @log.topic(TOPIC).subscribe(group=group, start_from="earliest", retries=0, concurrency=4)
        def handle(value: Any) -> None:
            if fails:
                raise TimeoutError(f"no answer for {value['n']}")

        log.start()
        eventually(until, within=30)


def dead(cli: Cli, *choice: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.run("dead", "list", GROUP, "--json", *choice).json["dead_letters"]
    return found


def with_dead(cli: Cli, log: lakelog.Lakelog, count: int) -> list[str]:
    """Create this number of dead letters, and return their ids."""
    publish(log, count, source="checkout")
    work(cli, fails=True, until=lambda: len(log.group(GROUP).dead_letters().list(1000)) == count)
    return [letter["id"] for letter in dead(cli)]


def test_list_and_describe_say_how_far_a_group_is(cli: Cli, log: lakelog.Lakelog) -> None:
    assert "No groups yet" in cli.run("groups", "list").err
    missing = cli.run("groups", "describe", GROUP, code=3)
    assert "is created when its first member" in missing.err and missing.out == ""
    publish(log, 10)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    assert GROUP in cli.run("groups", "list").out
    (listed,) = cli.run("groups", "list", "--json").json["groups"]
    assert (listed["group_id"], listed["kind"], listed["settings"]["retries"]["max"]) == (GROUP, "lease", 0)
    publish(log, 3)
    heading, line = cli.run("groups", "list").out.splitlines()
    assert heading.split() == ["GROUP", "LAG", "OLDEST", "MEMBERS", "DEAD", "STATUS"]
    assert re.fullmatch(r"billing +3 +\d+s +0 +0 +no-consumer", line)
    watched = cli.run("top").out.splitlines()
    assert watched[0] == "1 group, 1 stuck, lag 3" and "no_member" in watched[2]
    assert "Start a worker of group 'billing'" in watched[-1]
    assert cli.run("top", "--json").json["groups"][0]["stuck"][0]["code"] == "no_member"
    described = cli.run("groups", "describe", GROUP, "--json").json
    assert [each["code"] for each in described["stuck"]] == ["no_member"]
    assert described["lag"] == sum(each["lag"] for each in described["progress"]) == 3
    assert sum(each["acked"] for each in described["progress"]) == 10
    text = cli.run("groups", "describe", GROUP).out
    assert "3 messages" in text and "Why messages wait:\n  orders/0-1 (no_member for " in text


def test_describe_shows_members_and_leases_and_what_a_busy_member_leaves_waiting(
    cli: Cli, log: lakelog.Lakelog
) -> None:
    publish(log, 2)
    started, go_on = threading.Event(), threading.Event()

    def handle(value: Any) -> None:
        started.set()
        go_on.wait(60)

    with lakelog.connect(cli.env["LAKELOG_URL"]) as worker:
        worker.topic(TOPIC).subscribe(handle, group=GROUP, start_from="earliest")
        worker.start()
        try:
            assert started.wait(30)
            described = cli.run("groups", "describe", GROUP, "--json").json
            text = cli.run("groups", "describe", GROUP).out
            assert "stop them first" in cli.run("groups", "delete", GROUP, "--yes", code=1).err
        finally:
            go_on.set()
    (lease,), (member,) = described["leases"], described["members"]
    assert lease["offsets"] == [[0, 0]] and lease["owner"] in text and member["member_id"] in text
    assert described["lag"] == 2 and sorted(member["assigned_partitions"][TOPIC]) == [0, 1]
    busy, other = lease["partition"], 1 - lease["partition"]
    waiting = f"Assigned to member {member['member_id']}, which is working on 1 message of orders/{busy}."
    assert f"orders/{other} (capacity for " in text and waiting in text and "no members" not in text


def test_seek_by_every_way_to_name_a_place(cli: Cli, log: lakelog.Lakelog) -> None:
    publish(log, 10)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)

    def lag() -> int:
        return log.group(GROUP).lag()

    before = cli.run("groups", "seek", GROUP, TOPIC, "--to", "earliest", "--dry-run")
    assert "10 messages would be delivered again (dry run)" in before.err and lag() == 0
    moved = cli.run("groups", "seek", GROUP, TOPIC, "--to", "earliest", "--json").json
    assert moved["dry_run"] is False and sum(each["from"] - each["to"] for each in moved["partitions"]) == 10
    assert lag() == 10
    assert "skipped" in cli.run("groups", "seek", GROUP, TOPIC, "--to", "latest").err and lag() == 0
    cli.run("groups", "seek", GROUP, TOPIC, "--to", "1h")
    assert lag() == 10
    cli.run("groups", "seek", GROUP, TOPIC, "--to", "1", "--partition", "0")
    cli.run("groups", "seek", GROUP, TOPIC, "--to", "latest", "--partition", "1")
    (first, second) = log.group(GROUP).progress(TOPIC)
    assert (first.committed, second.lag) == (1, 0)
    third = log.topic(TOPIC).fetch(0, offset=2, limit=1).messages[0].id
    cli.run("groups", "seek", GROUP, TOPIC, "--to", third)
    assert log.group(GROUP).progress(TOPIC)[0].committed == 2
    assert "message's id" in cli.run("groups", "seek", GROUP, TOPIC, "--to", "sometime", code=2).err
    assert "partitions 0 to 1" in cli.run("groups", "seek", GROUP, TOPIC, "--to", "0", "--partition", "9", code=3).err
    assert cli.run("groups", "seek", "nobody", TOPIC, "--to", "0", code=3).out == ""


def test_skip_prints_what_it_skips_and_asks_for_confirmation(cli: Cli, log: lakelog.Lakelog) -> None:
    publish(log, 10)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    publish(log, 6)
    skip = ("groups", "skip", GROUP, TOPIC, "--partition", "0", "--to", "7")
    planned = cli.run(*skip, "--dry-run", "--json").json
    assert planned == {
        "dry_run": True,
        "partition": 0,
        "offset": 7,
        "messages": 2,
        "leased": 0,
        "unreadable": None,
    }
    asked = cli.run(*skip, code=2)
    assert "The next message of orders/0 can be read. Without a skip, the group receives it." in asked.err
    assert "Give --yes to run it anyway" in asked.err and log.group(GROUP).lag() == 6
    assert cli.run(*skip, "--yes").out == "skipped 2 messages of orders/0 below offset 7 for group billing\n"
    assert cli.run(*skip).out == "nothing to skip in orders/0 below offset 7 for group billing\n"
    first, second = log.group(GROUP).progress(TOPIC)
    assert (first.cut, first.committed, second.cut) == (2, 7, 0)
    above = cli.run("groups", "skip", GROUP, TOPIC, "--partition", "0", "--to", "99", code=1).err
    assert "Offset 99 is above the end of topic 'orders', partition 0: skip to 8 at most." in above
    below = cli.run("groups", "skip", GROUP, TOPIC, "--partition", "0", "--to", "3", code=1).err
    assert "it continues at 7. Skip to an offset from 7 to 8" in below
    assert cli.run("groups", "skip", "nobody", TOPIC, "--partition", "0", "--to", "3", code=3).out == ""


def test_pause_and_resume(cli: Cli, log: lakelog.Lakelog) -> None:
    publish(log, 1)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    assert "paused group billing, topic orders" in cli.run("groups", "pause", GROUP, "--topic", TOPIC).out
    assert "paused" in cli.run("groups", "list").out
    publish(log, 1)
    assert "lakelog groups resume billing" in cli.run("groups", "describe", GROUP).out
    assert cli.run("groups", "resume", GROUP, "--topic", TOPIC, "--json").json == {"resumed": GROUP, "topic": TOPIC}
    assert cli.run("groups", "list", "--json").json["groups"][0]["paused"] == []
    assert "all topics" in cli.run("groups", "pause", GROUP).out
    assert "all topics" in cli.run("groups", "describe", GROUP).out
    assert "paused as a whole" in cli.run("groups", "resume", GROUP, "--topic", TOPIC, code=1).err
    assert "resumed group billing, all topics" in cli.run("groups", "resume", GROUP).out
    assert cli.run("groups", "list", "--json").json["groups"][0]["paused"] == []


def test_alter_changes_the_given_settings(cli: Cli, log: lakelog.Lakelog) -> None:
    publish(log, 1)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    changed = cli.run(
        *("groups", "alter", GROUP, "--retries", "5", "--retry-base", "2s", "--retry-max-delay", "5m"),
        *("--order", "none", "--filter", "headers.source = 'checkout'", "--no-dead-letter", "--window", "50"),
        *("--assignor", "range", "--json"),
    ).json["settings"]
    assert changed["retries"] == {
        "max": 5,
        "strategy": "exponential",
        "base_ms": 2000,
        "max_ms": 300_000,
        "jitter": 0.2,
    }
    assert (changed["order"], changed["window"], changed["assignor"]) == ("none", 50, "range")
    assert changed["filter"] == "headers.source = 'checkout'" and changed["dead_letter"] is False
    again = cli.run("groups", "alter", GROUP, "--filter", "", "--retries", "1", "--dead-letter", "--json").json
    assert again["settings"]["filter"] is None and again["settings"]["dead_letter"] is True
    assert (again["settings"]["retries"]["max"], again["settings"]["retries"]["base_ms"]) == (1, 2000)
    assert "1, after 2s and then twice as long" in cli.run("groups", "alter", GROUP, "--window", "60").out
    kept = cli.run("groups", "alter", GROUP, "--dead-max-age", "30d", "--dead-max-count", "1000").out
    assert "kept as a dead letter, up to 30d, at most 1,000 per partition" in kept
    fewer = cli.run("groups", "alter", GROUP, "--dead-max-count", "10", "--keep-all-dead", "--json").json
    assert fewer["settings"]["dead_letter_retention"] == {"max_count": 10}
    assert "kept as a dead letter\n" in cli.run("groups", "alter", GROUP, "--keep-all-dead").out
    assert "--retries" in cli.run("groups", "alter", GROUP, code=2).err
    assert cli.run("groups", "alter", GROUP, "--filter", "headers.source =", code=1).err.startswith("lakelog: ")
    assert cli.run("groups", "alter", "nobody", "--window", "1", code=3)


def test_alter_changes_the_settings_of_one_topic(cli: Cli, log: lakelog.Lakelog) -> None:
    publish(log, 1)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    cli.run("groups", "alter", GROUP, "--retry-base", "2s")
    alter = ("groups", "alter", GROUP, "--topic", TOPIC)
    changed = cli.run(*alter, "--retries", "7", "--filter", "key = 'a'", "--json").json["settings"]
    own = changed["topics"][TOPIC]
    assert (own["retries"]["max"], own["retries"]["base_ms"], own["filter"]) == (7, 2000, "key = 'a'")
    assert (changed["retries"]["max"], changed["filter"]) == (0, None), "those of the group stay"
    assert f"in topic {TOPIC}" in cli.run("groups", "describe", GROUP).out
    assert "setting of the whole group" in cli.run(*alter, "--window", "5", code=1).err
    assert cli.run(*alter, "--inherit", "--json").json["settings"]["topics"] == {}


def test_delete_asks_for_confirmation(cli: Cli, log: lakelog.Lakelog) -> None:
    publish(log, 1)
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    assert "--yes" in cli.run("groups", "delete", GROUP, code=2).err
    assert "deleted" in cli.run("groups", "delete", GROUP, "--yes").out
    cli.run("groups", "describe", GROUP, code=3)


def test_dead_letters_are_listed_and_shown(cli: Cli, log: lakelog.Lakelog) -> None:
    ids = with_dead(cli, log, 6)
    text = cli.run("dead", "list", GROUP).out
    assert all(id in text for id in ids) and "no answer for 3" in text
    assert [letter["value"] for letter in dead(cli, "--where", "value.n = 3")] == [{"n": 3}]
    assert "may be more" in cli.run("dead", "list", GROUP, "--limit", "2").err
    assert len(dead(cli, "--topic", TOPIC, "--limit", "5")) == 5
    assert "no dead letters that were redriven" in cli.run("dead", "list", GROUP, "--state", "redriven").err
    (cluster,) = cli.run("dead", "clusters", GROUP, "--json").json["clusters"]
    assert (cluster["count"], cluster["pattern"]) == (6, "TimeoutError: no answer for <n>")
    assert len(dead(cli, "--cluster", cluster["fingerprint"])) == 6 and dead(cli, "--cluster", "0" * 12) == []
    shown = cli.run("dead", "show", GROUP, ids[0], "--json").json
    assert shown["headers"] == {"source": "checkout"} and shown["failures"] == 1 and shown["state"] == "dead"
    text = cli.run("dead", "show", GROUP, ids[0]).out
    assert text.count("no answer for") == 3, "in the error, and in two lines of the traceback"
    traceback = text[text.index("traceback\n") :].splitlines()
    assert traceback[2].startswith(f'    File "{__file__}", line ') and traceback[2].endswith("in handle")
    assert traceback[-1].startswith("  TimeoutError: no answer for")
    assert [line[2:] for line in traceback[1:]] == shown["traceback"].splitlines()
    assert "lakelog dead list billing" in cli.run("dead", "show", GROUP, "1-0-999999", code=3).err
    refused = cli.run("dead", "list", GROUP, "--where", "error like", code=1)
    assert refused.err.startswith("lakelog: ") and refused.out == ""


def test_redrive_publishes_them_again_for_their_group(cli: Cli, log: lakelog.Lakelog) -> None:
    ids = with_dead(cli, log, 6)
    looked = cli.run("dead", "redrive", GROUP, "--where", "value.n < 2", "--dry-run").json
    assert (looked["dry_run"], looked["redriven"]) == (True, 2) and len(dead(cli)) == 6
    assert "published again" in cli.run("dead", "retry", GROUP, ids[0], "--value", '{"n": 100}').out
    assert cli.run("dead", "retry", GROUP, ids[0], code=1).err.startswith("lakelog: ")
    assert cli.run("dead", "redrive", GROUP, "--limit", "2").json["redriven"] == 2
    assert cli.run("dead", "redrive", GROUP, "--rate", "1000/s", "--topic", TOPIC).json["redriven"] == 3
    assert dead(cli) == [] and len(dead(cli, "--state", "redriven")) == 6
    work(cli, fails=False, until=lambda: log.group(GROUP).lag() == 0)
    assert sum(each.acked for each in log.group(GROUP).progress()) == 6
    assert "100/s" in cli.run("dead", "redrive", GROUP, "--rate", "fast", code=2).err


def test_discarding_many_asks_for_confirmation(cli: Cli, log: lakelog.Lakelog) -> None:
    ids = with_dead(cli, log, 5)
    assert cli.run("dead", "discard", GROUP, *ids[:2], "--json").json == {"discarded": 2}
    assert "--yes" in cli.run("dead", "discard", GROUP, "--where", "failures = 1", code=2).err
    assert len(dead(cli)) == 3
    assert "discarded 3 dead letters" in cli.run("dead", "discard", GROUP, "--where", "failures = 1", "--yes").out
    assert "discarded 0 dead letters" in cli.run("dead", "discard", GROUP).out
    assert len(dead(cli, "--state", "discarded")) == 5
    assert "not both" in cli.run("dead", "discard", GROUP, ids[0], "--topic", TOPIC, code=2).err


def test_finished_dead_letters_are_purged(cli: Cli, log: lakelog.Lakelog) -> None:
    ids = with_dead(cli, log, 4)
    cli.run("dead", "discard", GROUP, *ids[:2])
    cli.run("dead", "retry", GROUP, ids[2])
    assert cli.run("dead", "purge", GROUP, "--older-than", "1h", "--json").json == {"purged": 0}
    assert "purged 3 dead letters" in cli.run("dead", "purge", GROUP, "--older-than", "1ms", "--topic", TOPIC).out
    assert [each["id"] for each in dead(cli)] == [ids[3]]
    assert dead(cli, "--state", "discarded") == dead(cli, "--state", "redriven") == []
    assert log.group(GROUP).dead_letters().purge(older_than=0) == 0


def test_a_terminal_shows_progress_and_asks_for_confirmation(cli: Cli, log: lakelog.Lakelog) -> None:
    if not cli.env["LAKELOG_URL"].startswith("http"):
        pytest.skip("the terminal is the same for both")
    with_dead(cli, log, 3)
    code, shown = at_terminal(cli, ["dead", "discard", GROUP], answer=b"n\n")
    assert code == 1 and "Discard 3 dead letters" in shown and "Nothing was changed." in shown
    code, shown = at_terminal(cli, ["dead", "redrive", GROUP])
    assert code == 0 and "3 dead letters published again for group billing" in shown
    assert len(dead(cli, "--state", "redriven")) == 3
    code, shown = at_terminal(cli, ["groups", "list", "--json"])
    assert code == 0 and json.loads(shown)["groups"][0]["group_id"] == GROUP


def at_terminal(cli: Cli, arguments: Sequence[str], answer: bytes = b"") -> tuple[int, str]:
    master, slave = pty.openpty()
    env = {name: text for name, text in os.environ.items() if not name.startswith("LAKELOG_")} | dict(cli.env)
    try:
        process = subprocess.Popen(
            [LAKELOG, *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=cli.folder, env=env
        )
        os.close(slave)
        os.write(master, answer)
        shown = b""
        while chunk := _read(master):
            shown += chunk
        return process.wait(60), shown.decode()
    finally:
        os.close(master)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:
        # The other end of a terminal is closed.
        return b""
