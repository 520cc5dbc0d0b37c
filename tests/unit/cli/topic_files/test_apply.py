"""`lakelog apply` on an installation in memory: the plan, what it shows, and that it is what happens."""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog.cli.app import app
from lakelog.cli.topic_files.applying import apply_change, read_present
from lakelog.cli.topic_files.planning import Action, Change, Kind, Present, PresentGroup, make_plan
from lakelog.cli.topic_files.views import described
from lakelog.cli.topic_files.wanted import GROUP_DEFAULTS, TOPIC_DEFAULTS, parse_wanted
from lakelog.errors import InvalidRequest
from tests.unit.docs.markdown import ROOT


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def log(url: str) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(url) as opened:
        yield opened


class Files:
    """Writes a file and applies it."""

    def __init__(self, folder: Path, url: str) -> None:
        self._file = folder / "topics.yaml"
        self._url = url

    def apply(self, text: str, *options: str, code: int = 0) -> Result:
        self._file.write_text(text)
        arguments = ["apply", str(self._file), *options, "--url", self._url]
        result = CliRunner().invoke(app, arguments, prog_name="lakelog")
        assert result.exit_code == code, result.output
        return result


@pytest.fixture
def files(tmp_path: Path, url: str, log: lakelog.Lakelog) -> Files:
    return Files(tmp_path, url)


FIRST = """
topics:
  orders: {partitions: 16, retention: {max_age: 7d}}
  refunds: {retention: {max_age: 7d}}
groups:
  billing:
    topics: {orders: {start_from: earliest, filter: "value.total > 100"}, refunds: {}}
    retries: 5
    dead_letter_retention: {max_age: 30d}
"""
SECOND = """
topics:
  refunds: {retention: {max_age: 30d}, tags: [eu]}
groups:
  billing:
    topics: {orders: {filter: null, dead_letter: false}}
    dead_letter_retention: null
"""


def test_a_plan_is_shown_as_a_diff_and_applied(files: Files, log: lakelog.Lakelog) -> None:
    log_before = log.topics()
    shown = files.apply(FIRST, "--dry-run")
    assert shown.stdout.splitlines() == [
        "+ topic orders (16 partitions, retention.max_age 7d)",
        "+ topic refunds (1 partition, retention.max_age 7d)",
        "+ group billing (reads orders from earliest, reads refunds from latest, retries 5 from 1s to 1m, "
        "dead_letter_retention.max_age 30d, topics.orders.filter 'value.total > 100')",
    ]
    assert shown.stderr == "3 to create (dry run)\n"
    assert log.topics() == log_before == [] and log.groups() == []
    done = files.apply(FIRST)
    assert (done.stdout, done.stderr) == (shown.stdout, "3 created\n")
    assert log.topic("orders").describe().partitions == 16
    group = log.group("billing").describe()
    assert (group.settings.retries.max, group.members) == (5, ())
    assert group.settings.in_topic("orders").filter == "value.total > 100"
    assert {each.topic for each in group.progress} == {"orders", "refunds"}


def test_applying_twice_changes_nothing(files: Files) -> None:
    files.apply(FIRST)
    again = files.apply(FIRST)
    assert (again.stdout, again.stderr) == ("", "nothing to change\n")


def test_a_change_names_before_and_after_and_leaves_the_rest(files: Files, log: lakelog.Lakelog) -> None:
    files.apply(FIRST)
    changed = files.apply(SECOND)
    assert changed.stdout.splitlines() == [
        "~ topic refunds: retention.max_age 7d -> 30d, tags [] -> [eu]",
        "~ group billing: dead_letter_retention.max_age 30d -> none, topics.orders.dead_letter none -> false, "
        "topics.orders.filter 'value.total > 100' -> none",
    ]
    settings = log.group("billing").describe().settings
    assert (settings.retries.max, settings.dead_letter_retention.is_unlimited) == (5, True)
    assert settings.topics["orders"].stated_by_name() == {"dead_letter": False}
    assert log.topic("orders").describe().partitions == 16


def test_json_has_the_same_changes(files: Files) -> None:
    planned = json.loads(files.apply(FIRST, "--dry-run", "--json").stdout)
    done = json.loads(files.apply(FIRST, "--json").stdout)
    assert (planned["dry_run"], done["dry_run"]) == (True, False)
    assert planned["changes"] == done["changes"]
    assert done["changes"][0] == {
        "action": "create",
        "kind": "topic",
        "name": "orders",
        "settings": {
            "partitions": {"before": None, "after": 16},
            "retention.max_age": {"before": None, "after": "7d"},
        },
        "begins": {},
    }


def test_a_new_group_starts_where_the_file_says(files: Files, log: lakelog.Lakelog) -> None:
    for name in ("early", "late", "exact", "added"):
        log.topic(name).create()
        log.topic(name).publish_many(["a", "b", "c"])
    files.apply("groups: {g: {topics: {early: {start_from: earliest}, late: {}, exact: {start_from: 2}}}}")
    assert [log.group("g").lag(topic) for topic in ("early", "late", "exact")] == [3, 0, 1]
    # A topic that is added later; the position of the others does not move.
    log.topic("late").publish("d")
    files.apply("groups: {g: {topics: {late: {start_from: earliest}, added: {start_from: earliest}}}}")
    assert [log.group("g").lag(topic) for topic in ("late", "added")] == [1, 3]


def test_a_cursor_group_is_created(files: Files, log: lakelog.Lakelog) -> None:
    files.apply("topics: {a: {}}\ngroups: {g: {kind: cursor, topics: [a]}}")
    assert log.group("g").describe().kind == "cursor"
    files.apply("groups: {g: {kind: cursor, topics: [a]}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics:\n  orders: {partitions: 8}", "yaml:2: Topic 'orders' has 16 partitions, and the file has 8. Partit"),
        ("groups:\n  new: {topics: [missing]}", "yaml:2: Group 'new' reads topic 'missing', which does not exist."),
        ("groups:\n  new: {}", "yaml:2: Group 'new' is new and reads no topic."),
        ("groups:\n  billing: {kind: cursor}", "yaml:2: Group 'billing' is a lease group, and the file has cursor."),
    ],
)
def test_a_plan_that_cannot_be_applied_is_refused_as_a_whole(
    files: Files, log: lakelog.Lakelog, text: str, said: str
) -> None:
    files.apply(FIRST)
    before = log.topics()
    refused = files.apply(
        f"{text}\n" + ("groups: {}\n" if text.startswith("topics") else "topics: {extra: {}}\n"), code=1
    )
    assert said in refused.stderr
    assert log.topics() == before


def test_nothing_is_deleted_without_prune_and_prune_asks(files: Files, log: lakelog.Lakelog) -> None:
    files.apply(FIRST)
    keep = "topics: {orders: {}}\ngroups: {}\n"
    assert files.apply(keep).stderr == "nothing to change\n"
    listed = ["- group billing", "- topic refunds"]
    planned = files.apply(keep, "--prune", "--dry-run")
    assert (planned.stdout.splitlines(), planned.stderr) == (listed, "2 to delete (dry run)\n")
    refused = files.apply(keep, "--prune", code=2)
    assert refused.stdout.splitlines() == listed and "--yes" in refused.stderr
    assert len(log.topics()) == 2
    files.apply(keep, "--prune", "--yes")
    assert ([each.name for each in log.topics()], log.groups()) == (["orders"], [])


def test_prune_leaves_a_section_that_the_file_does_not_have(files: Files, log: lakelog.Lakelog) -> None:
    files.apply(FIRST)
    files.apply("topics: {orders: {}, refunds: {}}", "--prune", "--yes")
    assert [each.name for each in log.groups()] == ["billing"]
    refused = files.apply("topics: {}\n", "--prune", "--yes", code=1)
    assert "--prune would delete all" in refused.stderr


def test_a_group_cannot_read_a_topic_that_is_pruned(files: Files) -> None:
    files.apply(FIRST)
    refused = files.apply("topics: {orders: {}}\ngroups: {billing: {topics: [refunds]}}", "--prune", "--yes", code=1)
    assert "reads topic 'refunds', which does not exist" in refused.stderr


def test_a_schema_in_the_file_and_beside_it(files: Files, log: lakelog.Lakelog, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    text = "topics: {a: {schema: order.json}, b: {schema: {type: object}, compatibility: full}}"
    assert files.apply(text).stdout.splitlines() == [
        "+ topic a (1 partition, with a schema)",
        "+ topic b (1 partition, with a schema, compatibility full)",
    ]
    assert files.apply(text).stderr == "nothing to change\n"
    assert (log.topic("b").schema().compatibility, log.topic("a").schema().version) == ("full", 1)
    (tmp_path / "order.json").write_text('{"type": "object", "properties": {"n": {"type": "number"}}}')
    assert files.apply(text).stdout == "~ topic a: schema changed\n"
    (tmp_path / "order.json").write_text('{"type": "object", "required": ["n"]}')
    for options in ((), ("--dry-run",)):
        refused = files.apply(text, *options, code=1)
        assert "yaml:1: The schema of topic 'a' is not compatible (backward) with version 2: " in refused.stderr
    removed = files.apply("topics: {a: {schema: null}}")
    assert removed.stdout == "~ topic a: schema removed\n"
    assert log.topic("a").describe().schema_version is None


def test_columns_in_the_file(files: Files, log: lakelog.Lakelog, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"properties": {"n": {"type": "integer", "format": "int32"}}}')
    text = "topics: {a: {schema: order.json, columns: order.json}, b: {}}"
    assert files.apply(text).stdout.splitlines()[0] == "+ topic a (1 partition, with a schema, with columns)"
    assert files.apply(text).stderr == "nothing to change\n"
    (tmp_path / "order.json").write_text('{"properties": {"n": {"type": "integer"}, "m": {"type": "string"}}}')
    text = "topics: {a: {columns: order.json}, b: {columns: order.json}}"
    assert files.apply(text).stdout.splitlines() == ["~ topic a: columns changed", "~ topic b: columns added"]
    assert files.apply(text).stderr == "nothing to change\n"
    assert str(log.topic("a").describe().columns) == "n: long, m: string"
    assert "cannot be removed" in files.apply("topics: {a: {columns: null}}", code=1).stderr
    narrower = files.apply("topics:\n  a: {columns: {properties: {n: {type: string}}}}", "--dry-run", code=1)
    assert "yaml:2: `topics.a`: `v.n` is long and cannot become string" in narrower.stderr


def test_masks_in_the_file(files: Files, log: lakelog.Lakelog) -> None:
    text = "topics: {a: {masks: [key, \"value['card'].number\"]}}"
    assert files.apply(text).stdout.splitlines() == ["+ topic a (1 partition, masks [key, value.card.number])"]
    assert files.apply(text).stderr == files.apply("topics: {a: {}}").stderr == "nothing to change\n"
    changed = files.apply("topics: {a: {masks: [key]}}").stdout.splitlines()
    assert changed == ["~ topic a: masks [key, value.card.number] -> [key]"]
    assert log.topic("a").describe().masks == ("key",)
    files.apply("topics: {a: {masks: null}}")
    assert log.topic("a").describe().masks == ()


def test_a_schema_is_removed_with_its_rule(files: Files, log: lakelog.Lakelog) -> None:
    files.apply("topics: {a: {schema: {type: object}, compatibility: full}}")
    assert files.apply("topics: {a: {schema: null}}").stdout == "~ topic a: schema removed\n"
    assert log.topic("a").describe().schema_version is None
    assert files.apply("topics: {a: {schema: null}}").stderr == "nothing to change\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics:\n  a: {masks: [offset]}", "yaml:2: `topics.a.masks`: A mask must be key, "),
        ("topics:\n  a: {columns: {type: string}}", "yaml:2: `topics.a.columns`: The columns of a topic need a schema"),
        ("topics:\n  a: {compatibility: none}", "yaml:2: Topic 'a' has a `compatibility` and no schema."),
        ("topics:\n  a: {schema: missing.json}", "missing.json cannot be read: No such file or directory."),
        ("topics:\n  a: {schema: 7}", "yaml:2: `topics.a.schema`: "),
        ("topics:\n  a: {compatibility: some}", "must be one of none, backward, forward, full"),
    ],
)
def test_a_bad_schema_is_refused(files: Files, text: str, said: str) -> None:
    assert said in files.apply(text, code=1).stderr


def test_the_page_shows_what_happens(files: Files) -> None:
    """Apply the file of the how-to page, and compare what it shows."""
    page = (ROOT / "docs/howto/manage-topics-as-files.md").read_text()
    text = page.partition('title="topics.yaml"\n')[2].partition("```")[0]
    expected = re.findall(r"^\$ lakelog apply (.+)\n((?:[^$`].*\n)*)", page, re.M)
    assert [arguments for arguments, _ in expected] == ["topics.yaml --dry-run", *["topics.yaml"] * 3]
    for number, (arguments, output) in enumerate(expected):
        shown = files.apply(text.replace("7d", "14d") if number == 3 else text, *arguments.split()[1:])
        assert shown.stdout + shown.stderr == output


# Random pairs of files -----------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
SCHEMAS: list[dict[str, Any]] = [
    {},
    {"schema": None, "compatibility": None},
    {"schema": {"type": "object"}, "compatibility": "none"},
    {"schema": {"type": "object", "required": ["n"]}, "compatibility": "none"},
]


def random_file(dice: random.Random) -> str:
    """Return a file with random topics and groups, in JSON, which is YAML too."""

    def some(**choices: list[Any]) -> dict[str, Any]:
        return {name: dice.choice(values) for name, values in choices.items() if dice.random() < 0.5}

    def delivery() -> dict[str, Any]:
        retries = [0, 3, None, {"max": 2, "delay": "5s"}, {"strategy": "fixed", "delay": "1s"}]
        return some(filter=["value.n > 1", "", None], retries=retries, dead_letter=[True, False, None])

    def topic() -> dict[str, Any]:
        limits = some(max_age=["1h", "7d", None], max_count=[1, 100, None], max_bytes=["1GiB", 5, None])
        return some(
            partitions=[1, 2, 3],
            retention=[limits, None],
            key_field=["id", None],
            idempotency_memory=["1h", None],
            tags=[[], ["x"], ["x", "y"], None],
            metadata=[{}, {"o": "p"}, None],
        ) | dice.choice(SCHEMAS)

    def group(known: list[str]) -> dict[str, Any]:
        retention = some(max_age=["1h", None], max_count=[1, 7, None])
        settings = some(
            order=["key", "partition", "none", None],
            dead_letter_retention=[retention, None],
            assignor=["range", "sticky", None],
            window=[1, 77, None],
        )
        read = dice.sample(known, dice.randint(1, len(known)))
        return (
            settings
            | delivery()
            | {"topics": {name: some(start_from=["earliest", "latest", 0]) | delivery() for name in read}}
        )

    topics = {name: topic() for name in dice.sample(NAMES, dice.randint(1, 4))}
    groups = {f"g{name}": group([*topics]) for name in dice.sample(NAMES, dice.randint(0, 3))}
    return json.dumps({"topics": topics, "groups": groups})


def predicted(present: Present, plan: list[Change]) -> Present:
    """Return the installation that the plan promises."""
    topics, groups = dict(present.topics), dict(present.groups)
    for change in plan:
        section: dict[str, Any] = topics if change.kind is Kind.TOPIC else groups
        after = {each.name: each.after for each in change.settings if not each.name.startswith("topics.")}
        if change.action is Action.DELETE:
            del section[change.name]
        elif change.kind is Kind.TOPIC:
            settings = {**topics.get(change.name, TOPIC_DEFAULTS), **after}
            # A topic without a schema has no rule for its changes.
            rule = {} if settings["schema"] is not None else {"compatibility": TOPIC_DEFAULTS["compatibility"]}
            topics[change.name] = {**settings, **rule}
        else:
            found = groups.get(change.name) or PresentGroup(kind=change.group_kind, settings=GROUP_DEFAULTS)
            own = {**found.topics, **change.topics}
            groups[change.name] = PresentGroup(
                kind=change.group_kind,
                settings={**found.settings, **after},
                topics={topic: settings for topic, settings in own.items() if settings},
                reads=found.reads | {*change.begins},
            )
    # A group has no position in a topic that is gone.
    groups = {name: replace(group, reads=group.reads & topics.keys()) for name, group in groups.items()}
    return Present(topics=topics, groups=groups)


@pytest.mark.parametrize("seed", range(40))
def test_the_dry_run_equals_the_result_and_the_second_run_changes_nothing(log: lakelog.Lakelog, seed: int) -> None:
    dice = random.Random(seed)
    applied = 0
    for _ in range(3):
        wanted = parse_wanted(random_file(dice), "f.yaml")
        prune = dice.random() < 0.5
        present = read_present(log, wanted)
        try:
            plan = make_plan(wanted, present, prune=prune)
        except InvalidRequest as error:
            assert "Partitions cannot be removed" in error.detail
            continue
        assert [described(each) for each in make_plan(wanted, read_present(log, wanted), prune=prune)] == [
            described(each) for each in plan
        ]
        for change in plan:
            apply_change(log, change)
        after = read_present(log, wanted)
        promised = predicted(present, plan)
        assert after.topics == promised.topics
        assert {name: after.groups[name] for name in wanted.groups or {}} == {
            name: promised.groups[name] for name in wanted.groups or {}
        }
        assert after.groups.keys() == promised.groups.keys()
        assert make_plan(wanted, after, prune=prune) == []
        applied += 1
    assert applied
