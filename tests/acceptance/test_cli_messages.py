"""Topics and messages from the command line, against a real `lakelog dev`."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import lakelog
from tests.acceptance.cli_kit import LAKELOG, Cli, Dev, dev, open_folder
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def started() -> Iterator[Dev]:
    with open_folder() as folder, dev(folder) as running:
        yield running


@pytest.fixture(scope="module")
def cli(started: Dev) -> Cli:
    return started.cli


@pytest.fixture
def topic(cli: Cli, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_")[:100]
    cli.run("topics", "create", name)
    return name


def test_a_first_try_as_a_shell_runs_it(cli: Cli) -> None:
    cli.spawn("topics", "create", "first", "--partitions", "2")
    assert cli.spawn("publish", "first", stdin="hello\n").json["published"] == 1
    assert cli.spawn("publish", "first", stdin='{"n": 1}\n{"n": 2}\n').json["published"] == 2
    lines = cli.spawn("tail", "first", "--from", "earliest", "--json").lines
    assert sorted(str(line["value"]) for line in lines) == ["hello", "{'n': 1}", "{'n': 2}"]
    missing = cli.spawn("fetch", "missing", code=3)
    assert (missing.out, missing.err.count("\n")) == ("", 1)


@pytest.fixture(scope="module")
def ordinary(started: Dev, cli: Cli) -> str:
    """Return the name of a topic, and of a group that reads it."""
    name = "ordinary"
    cli.run("topics", "create", name)
    with lakelog.connect(started.url, token=started.env["LAKELOG_TOKEN"]) as log:
        log.topic(name).subscribe(print, group=name)
        log.start()
    return name


HEAVY = {"asyncpg", "numpy", "pyarrow", "pyspark", "rich", "starlette", "uvicorn"}


@pytest.mark.parametrize(
    "command",
    [
        "topics list",
        "topics describe ordinary",
        "groups list",
        "groups describe ordinary",
        "dead list ordinary",
        "publish ordinary --value {}",
    ],
)
def test_ordinary_commands_load_nothing_heavy(cli: Cli, ordinary: str, command: str) -> None:
    """Importing Arrow alone takes longer than such a command may take."""
    timed = replace(cli, env={**cli.env, "PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in timed.spawn(*command.split()).err.splitlines()}
    assert "lakelog.client._sync.http" in loaded and loaded & HEAVY == set()


def test_names_of_topics_and_groups_are_completed(cli: Cli, ordinary: str) -> None:
    cli.run("topics", "create", "ordinary-too", "--if-missing")

    def completed(words: str) -> list[str]:
        place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        done = replace(cli, env={**cli.env, **place, "_LAKELOG_COMPLETE": "complete_bash"}).spawn()
        assert done.err == ""
        return done.out.split()

    assert completed("lakelog tail ord") == completed("lakelog dead list x --topic ord") == [ordinary, "ordinary-too"]
    assert completed("lakelog groups describe ") == [ordinary]
    assert completed("lakelog topics create ord") == []


def test_topics_from_birth_to_death(cli: Cli, tmp_path: Path) -> None:
    made = cli.run(
        *("topics", "create", "life", "--partitions", "3", "--max-age", "7d", "--max-bytes", "10GiB"),
        *("--max-count", "1000", "--key-field", "id", "--tag", "a", "--tag", "b", "--metadata", "owner=me", "--json"),
    ).json
    assert made["retention"] == {"max_age_ms": 604_800_000, "max_count": 1000, "max_bytes": 10 << 30}
    assert (made["partitions"], made["key_field"], made["tags"], made["metadata"]) == (
        3,
        "id",
        ["a", "b"],
        {"owner": "me"},
    )
    assert "--if-missing" in cli.run("topics", "create", "life", code=1).err
    assert "life" in cli.run("topics", "create", "life", "--if-missing").out
    assert "life" in cli.run("topics", "list").out
    assert "life" in [one["name"] for one in cli.run("topics", "list", "--json").json["topics"]]

    altered = cli.run("topics", "alter", "life", "--partitions", "4", "--max-age", "1h", "--json").json
    assert (altered["partitions"], altered["retention"]["max_age_ms"], altered["retention"]["max_count"]) == (
        4,
        3_600_000,
        1000,
    )
    assert cli.run("topics", "alter", "life", "--keep-all", "--json").json["retention"] == dict.fromkeys(
        altered["retention"]
    )
    assert "cannot become fewer" in cli.run("topics", "alter", "life", "--partitions", "1", code=1).err

    columns = str(tmp_path / "order.json")
    Path(columns).write_text('{"properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}')
    assert "id: string, n: long" in cli.run("topics", "alter", "life", "--columns", columns).out
    assert "has no schema" in cli.run("topics", "alter", "life", "--columns-from-schema", code=3).err
    cli.run("topics", "schema", "set", "life", "-", stdin='{"properties": {"x": {"type": "number"}}}')
    assert "n: long, x: double" in cli.run("topics", "alter", "life", "--columns-from-schema").out
    assert "not both" in cli.run("topics", "alter", "life", "--columns-from-schema", "--columns", columns, code=2).err
    cli.run("topics", "schema", "remove", "life", "--yes")

    masked = ("topics", "alter", "life", "--mask", "value.card", "--mask", "headers['x-y']")
    assert cli.run(*masked, "--json").json["masks"] == ["value.card", "headers.x-y"]
    assert re.search(r"masks +value.card, headers.x-y", cli.run("topics", "describe", "life").out)
    assert "not both" in cli.run(*masked, "--no-masks", code=2).err
    assert "A mask must be key" in cli.run("topics", "alter", "life", "--mask", "offset", code=1).err
    assert cli.run("topics", "alter", "life", "--no-masks", "--json").json["masks"] == []

    cli.run("publish", "life", "--value", "x", "--partition", "2")
    assert "--yes" in cli.run("topics", "purge", "life", code=2).err
    assert cli.run("topics", "purge", "life", "--yes", "--json").json["removed"] == 1
    described = cli.run("topics", "describe", "life", "--json").json["partition_list"]
    assert [(one["log_start"], one["high_watermark"]) for one in described] == [(0, 0), (0, 0), (1, 1), (0, 0)]
    assert "HIGH WATERMARK" in cli.run("topics", "describe", "life").out

    assert "--yes" in cli.run("topics", "delete", "life", code=2).err
    cli.run("topics", "delete", "life", "--yes")
    assert "topics create life" in cli.run("topics", "describe", "life", code=3).err


def test_lines_of_text_go_in_and_come_out(cli: Cli, topic: str) -> None:
    summary = cli.run("publish", topic, "--key", "k", "--header", "source=test", stdin="one\n\nzwei ö\n12\n").json
    assert (summary["published"], summary["bad"]) == (3, 0)
    found = cli.run("fetch", topic, "--json").json
    assert [message["value"] for message in found["messages"]] == ["one", "zwei ö", "12"]
    assert {message["key"] for message in found["messages"]} == {"k"}
    assert found["messages"][0]["headers"] == {"source": "test"}
    assert (found["next_offset"], found["log_start"], found["high_watermark"]) == (3, 0, 3)
    plain = cli.run("fetch", topic)
    assert "zwei ö" in plain.out and "no more" in plain.err


def test_json_lines_keep_their_numbers_and_give_keys(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"account": "a", "total": 1.10}\n{"account": 7, "total": 12345678901234567890123}\n')
    assert cli.run("publish", topic, str(file), "--key-field", "account").json["published"] == 2
    out = cli.run("tail", topic, "--json").out.splitlines()
    assert [json.loads(line)["key"] for line in out] == ["a", "7"]
    assert '"total": 1.10}' in out[0] and "12345678901234567890123" in out[1]


def test_the_topics_key_field_is_used(cli: Cli) -> None:
    cli.run("topics", "create", "keyed", "--key-field", "id")
    cli.run("publish", "keyed", stdin='{"id": "x"}\n')
    assert cli.run("tail", "keyed", "--json").lines[0]["key"] == "x"


def test_a_bad_line_is_named_and_what_was_before_it_is_published(cli: Cli, topic: str) -> None:
    lines = '{"n": 1}\n{"n": 2}\n{"n":\n{"n": 4}\n'
    refused = cli.run("publish", topic, stdin=lines, code=1)
    assert "Line 3" in refused.err and "2 messages" in refused.err and "--skip-bad" in refused.err
    assert len(cli.run("tail", topic, "--json").lines) == 2
    skipped = cli.run("publish", topic, "--skip-bad", stdin=lines, code=1)
    assert (skipped.json["published"], skipped.json["bad"]) == (3, 1) and "line 3" in skipped.err
    assert [line["value"]["n"] for line in cli.run("tail", topic, "--json").lines] == [1, 2, 1, 2, 4]


def test_a_line_over_the_limit_is_a_bad_line(cli: Cli, topic: str) -> None:
    lines = "x" * ((1 << 20) + 1) + "\nshort\n"
    assert "Line 1" in cli.run("publish", topic, stdin=lines, code=1).err
    assert cli.run("publish", topic, "--skip-bad", stdin=lines, code=1).json["published"] == 1


def test_bytes_go_in_raw_and_come_out_as_base64(cli: Cli, topic: str) -> None:
    data = bytes(range(256))
    cli.run("publish", topic, "--format", "raw", stdin=data)
    assert base64.b64decode(cli.run("tail", topic, "--json").lines[0]["value_base64"]) == data
    assert "256 bytes" in cli.run("tail", topic).out


def test_messages_can_be_copied_from_topic_to_topic(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", "copy")
    cli.run("publish", topic, "--key", "k", "--header", "a=b", stdin='{"n": 1.0}\n"text"\nnull\n')
    cli.run("publish", topic, "--format", "raw", stdin=b"\xff\x00")
    original = cli.run("tail", topic, "--json").out
    assert cli.run("publish", "copy", "--format", "messages", stdin=original).json["published"] == 4
    kept = ("key", "value", "value_base64", "headers", "content_type")
    copied = cli.run("tail", "copy", "--json").lines
    assert [{name: one.get(name) for name in kept} for one in copied] == [
        {name: one.get(name) for name in kept} for one in map(json.loads, original.splitlines())
    ]


def test_one_value_has_a_receipt_and_an_idempotency_key(cli: Cli, topic: str) -> None:
    first = cli.run("publish", topic, "--value", "a", "--idempotency-key", "x").json
    again = cli.run("publish", topic, "--value", "a", "--idempotency-key", "x").json
    assert first["duplicate"] is False and again == {**first, "duplicate": True}
    assert "other content" in cli.run("publish", topic, "--value", "b", "--idempotency-key", "x", code=1).err


def test_a_json_value_is_published_as_json(cli: Cli, topic: str) -> None:
    cli.run("publish", topic, "--key", "a1", "--value", '{"account_id": "a1", "total": 30}')
    (found,) = cli.run("tail", topic, "--json").lines
    assert (found["value"], found["content_type"]) == ({"account_id": "a1", "total": 30}, "application/json")


def test_fetch_starts_at_the_given_position(cli: Cli, topic: str) -> None:
    cli.run("publish", topic, stdin="\n".join(f"m{n}" for n in range(30)))

    def found(*arguments: str) -> list[str]:
        messages = cli.run("fetch", topic, *arguments, "--json").json["messages"]
        return [message["value"] for message in messages]

    assert found("--offset", "27") == ["m27", "m28", "m29"]
    assert found("--last", "1") == ["m29"]
    assert found("--from", "latest") == []
    assert len(found("--from", "1h")) == len(found("--from", "2020-01-01")) == 30
    assert found("--from", "2100-01-01T00:00Z") == []
    assert found("--from", "earliest", "--limit", "2") == ["m0", "m1"]
    assert "Give only one of" in cli.run("fetch", topic, "--offset", "1", "--last", "1", code=2).err
    assert "earliest" in cli.run("fetch", topic, "--from", "sometime", code=2).err
    assert "high watermark" in cli.run("fetch", topic, "--offset", "99", code=1).err
    assert "partitions 0 to 0" in cli.run("fetch", topic, "--partition", "9", code=3).err


def test_tail_shows_the_newest_of_all_partitions(cli: Cli) -> None:
    cli.run("topics", "create", "wide", "--partitions", "3")
    for n in range(15):
        cli.run("publish", "wide", "--value", f"m{n}", "--partition", str(n % 3))
    assert [line["value"] for line in cli.run("tail", "wide", "--json").lines] == [f"m{n}" for n in range(5, 15)]
    assert [line["value"] for line in cli.run("tail", "wide", "-n", "2", "--json").lines] == ["m13", "m14"]
    third = cli.run("tail", "wide", "--partition", "2", "--from", "earliest", "--json").lines
    assert [line["value"] for line in third] == [f"m{n}" for n in range(2, 15, 3)]
    assert len(cli.run("tail", "wide", "--from", "earliest", "--json").lines) == 15


@pytest.mark.parametrize("choice", [(), ("--partition", "0"), ("--from", "latest")], ids=["all", "one", "latest"])
def test_tail_follows_and_ends_quietly_by_ctrl_c(cli: Cli, choice: tuple[str, ...]) -> None:
    name = f"follow-{len(choice)}-{'-'.join(choice).strip('-') or 'all'}"
    cli.run("topics", "create", name)
    follower = cli.popen("tail", name, "-f", "--json", *choice)
    assert follower.stdout is not None and follower.stderr is not None
    seen: list[str] = []
    try:
        os.set_blocking(follower.stdout.fileno(), False)
        numbers = iter(range(10_000))

        def sees_what_is_published() -> bool:
            # It may start to follow only after the first of these messages.
            cli.run("publish", name, "--value", str(next(numbers)))
            assert follower.poll() is None
            seen.extend(json.loads(line)["value"] for line in follower.stdout or ())
            return len(seen) >= 3

        eventually(sees_what_is_published, within=60, what="three messages, each printed as it comes")
        assert seen == [str(int(seen[0]) + n) for n in range(len(seen))]
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 130
        assert follower.stderr.read() == b""
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()
        follower.stderr.close()


def test_tail_ends_quietly_when_its_reader_does(cli: Cli, topic: str) -> None:
    cli.run("publish", topic, stdin="one\n")
    follower = cli.popen("tail", topic, "-f", "--json")
    assert follower.stdout is not None and follower.stderr is not None
    try:
        assert json.loads(follower.stdout.readline())["value"] == "one"
        follower.stdout.close()
        assert follower.wait(30) == 0, "although no message comes that it could fail to write"
        assert follower.stderr.read() == b""
    finally:
        follower.kill()
        follower.wait()
        follower.stderr.close()


def test_a_long_output_ends_quietly_when_its_reader_does(cli: Cli, topic: str) -> None:
    cli.run("publish", topic, stdin="x" * 200 + "\n" + ("y" * 200 + "\n") * 5000)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{LAKELOG}' tail {topic} --from earliest | head -1"],
        cwd=cli.folder,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.count(b"\n") == 1


def test_a_person_sees_progress_and_a_sentence(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("line\n" * 20_000)
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen([LAKELOG, "publish", topic, str(file)], stdout=slave, stderr=slave, cwd=cli.folder)
        os.close(slave)
        shown = b""
        while chunk := _read(master):
            shown += chunk
        assert process.wait(60) == 0
    finally:
        os.close(master)
    assert b"messages" in shown and b"/s" in shown
    assert b"published 20,000 messages in" in shown


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:
        # The other end of a terminal is closed.
        return b""


def test_many_messages_in_bulk(cli: Cli, topic: str) -> None:
    count = 50_000
    lines = "".join(f'{{"n": {n}, "text": "some words to have a body"}}\n' for n in range(count))
    assert cli.run("publish", topic, stdin=lines).json["published"] == count
    assert cli.run("topics", "describe", topic, "--json").json["partition_list"][0]["high_watermark"] == count
    assert len(cli.run("fetch", topic, "--limit", "2500", "--json").json["messages"]) == 2500


def test_schema_of_a_topic(cli: Cli) -> None:
    order = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    (cli.folder / "order.json").write_text(json.dumps(order))
    cli.run("topics", "create", "checked", "--schema", "order.json", "--compatibility", "full")
    assert "version 1, compatibility full" in cli.run("topics", "describe", "checked").out
    shown = cli.run("topics", "schema", "show", "checked")
    assert json.loads(shown.out) == order and "version 1 of 1, compatibility full" in shown.err
    assert cli.run("publish", "checked", stdin='{"id": "a"}\n').json["published"] == 1
    refused = cli.run("publish", "checked", stdin='{"id": "a"}\n{"id": 7}\n', code=1)
    assert "/id" in refused.err and "schema version 1" in refused.err
    (cli.folder / "wider.json").write_text(json.dumps({**order, "required": []}))
    refused = cli.run("topics", "schema", "check", "checked", "wider.json", code=1)
    assert "/id" in refused.out and "required" in refused.out and "not full compatible" in refused.err
    assert "not full compatible" in cli.run("topics", "schema", "set", "checked", "wider.json", code=1).err
    backward = ("wider.json", "--compatibility", "backward")
    assert "backward compatible" in cli.run("topics", "schema", "check", "checked", *backward).out
    assert "version 2 of its schema" in cli.run("topics", "schema", "set", "checked", *backward).out
    assert "equals version 2" in cli.run("topics", "schema", "check", "checked", "wider.json").out
    assert cli.run("topics", "schema", "show", "checked", "--version", "1", "--json").json["schema"] == order
    cli.run("topics", "schema", "set", "checked", code=2)
    cli.run("topics", "schema", "set", "checked", "missing.json", code=2)
    cli.run("topics", "schema", "remove", "checked", "--yes")
    assert "has no schema" in cli.run("topics", "schema", "show", "checked", code=3).err


def test_delayed_messages(cli: Cli, topic: str) -> None:
    in_a_month = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    receipt = cli.run("publish", topic, "--value", '{"n": 1}', "--key", "k", "--delay", "1h30m", "--json").json
    assert (receipt["offset"], receipt["due_at"][:2]) == (None, "20")
    cli.run("publish", topic, "--deliver-at", in_a_month, stdin="line\n")
    first, second = cli.run("topics", "scheduled", topic, "--json").lines
    assert (first["id"], first["key"], first["value"]) == (receipt["id"], "k", {"n": 1})
    assert (second["due_at"], second["value"]) == (in_a_month, "line")
    assert receipt["id"] in cli.run("topics", "scheduled", topic, "--limit", "1").out
    assert cli.run("topics", "cancel", topic, receipt["id"], "--json").json["cancelled"] is True
    soon = cli.run("publish", topic, "--value", "soon", "--delay", "100ms", "--json").json
    eventually(lambda: len(cli.run("topics", "scheduled", topic, "--json").lines) == 1)
    cli.run("topics", "cancel", topic, soon["id"], code=1)
    assert "use --delay 2h" in cli.run("publish", topic, "--value", "a", "--deliver-at", "2h", code=2).err
    assert "not both" in cli.run("publish", topic, "--value", "a", "--delay", "1s", "--deliver-at", "x", code=2).err
