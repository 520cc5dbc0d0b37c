"""The reference tables list every code, setting, limit, metric, command and route, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import typer.main

from lakelog.batches import COLUMNS, PUBLIC
from lakelog.cli import failures
from lakelog.cli.app import app
from lakelog.cli.formats import Format
from lakelog.engine.groups.figures import Figures
from lakelog.engine.groups.reasons import Status, status_of_group
from lakelog.errors import all_errors
from lakelog.model import limits
from lakelog.model.topic_info import CreateTopicRequest, RetentionLimits
from lakelog.server import METRICS, ServerSettings
from lakelog.server.group_metrics import GROUP_METRICS, render
from lakelog.server.metrics import Metrics
from lakelog.server.routing import Row
from lakelog.server.supervisor import EXIT_CONFIGURATION
from lakelog.wire import shapes
from lakelog.wire.operations import OPERATIONS
from lakelog.wire.operations import PUBLIC as PUBLIC_RULE
from lakelog.wire.problems import STATUS
from tests.unit.docs.markdown import DOCS, ROOT, code, reference, section, table


def test_errors() -> None:
    documented = [
        (code(row[0]), code(row[1]), int(row[2]), {"yes": True, "no": False}[row[3]])
        for row in table(reference("errors"), "code")
    ]
    assert documented == [(kind.code, kind.__name__, STATUS[kind], kind.retryable) for kind in STATUS]
    assert set(STATUS) == set(all_errors())


def test_every_error_says_what_to_do() -> None:
    assert all(row[4].endswith(".") for row in table(reference("errors"), "code"))


def test_server_settings() -> None:
    documented = {code(row[0]): row[1] for row in table(section(reference("configuration"), "Server"), "variable")}
    assert documented == {
        f"LAKELOG_{name.upper()}": _default(field.get_default(call_default_factory=True, validated_data={}))
        for name, field in ServerSettings.model_fields.items()
    }


def _default(value: object) -> str:
    if value is None:
        return "none"
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`"


def test_every_variable_of_the_code_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"LAKELOG_[A-Z][A-Z_]+[A-Z]", sources))
    page = reference("configuration")
    documented = {
        code(row[0]) for name in ("Server", "Client and commands") for row in table(section(page, name), "variable")
    }
    settings = {f"LAKELOG_{name.upper()}" for name in ServerSettings.model_fields}
    assert documented == used | settings


def test_topic_settings() -> None:
    documented = {
        name.strip("` ")
        for row in table(section(reference("configuration"), "Topic settings"), "setting")
        for name in row[0].split(",")
    }
    create = set(CreateTopicRequest.__struct_fields__) - {"topic", "retention", "if_missing"}
    assert documented == create | {f"retention.{name}" for name in RetentionLimits.__struct_fields__}


def test_limits() -> None:
    documented = {}
    for _, value, where in table(section(reference("configuration"), "Limits"), "limit"):
        module, _, constant = code(where).partition(":")
        number = int(value.split()[0].replace(",", ""))
        assert getattr(import_module(module), constant) == number, constant
        documented[code(where)] = number
    ours = {f"lakelog.model.limits:{name}" for name in vars(limits) if name.isupper()}
    assert ours <= set(documented)


def test_metrics() -> None:
    documented = {code(row[0]): (row[1], row[2]) for row in table(reference("metrics"), "metric")}
    metrics = Metrics()
    metrics.answered("publish", 200)
    metrics.answers["ack", "ok"] += 1
    metrics.forwarded["answered",] += 1
    metrics.sample(in_flight=0, memory_used=0, memory_limit=0)
    served = dict(re.findall(r"^# TYPE (\S+) (\w+)$", metrics.render().decode(), re.MULTILINE))
    assert {name: kind for name, (kind, _) in documented.items()} == served
    assert set(documented) == set(METRICS)
    labelled = {name for name, (_, labels) in documented.items() if labels}
    assert labelled == set(re.findall(r"^(\w+)\{(?!le=)", metrics.render().decode(), re.MULTILINE))


def test_metrics_of_groups() -> None:
    documented = {code(row[0]): row[1] for row in table(reference("metrics"), "metric of groups")}
    page = render(Figures()).decode()
    served = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE))
    assert documented == served
    assert set(documented) == set(GROUP_METRICS)


def commands(command: Any, path: tuple[str, ...] = ("lakelog",)) -> Iterator[tuple[str, set[str]]]:
    """Each command that does something, and its long options."""
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(path), {name for one in command.params for name in one.opts if name.startswith("--")}
    for name, child in (children or {}).items():
        yield from commands(child, (*path, name))


def test_commands_and_their_options() -> None:
    page = reference("cli")
    root = typer.main.get_command(app)
    of_root = {name for one in root.params for name in one.opts}
    listed = {code(row[0]) for row in table(section(page, "Options of several commands"), "option")}
    assert of_root <= listed
    shared = listed - of_root
    documented = {
        code(row[0]): set(re.findall(r"--[a-z-]+", row[1])) for row in table(section(page, "All commands"), "command")
    }
    there = dict(commands(root))
    assert documented == {path: options - shared for path, options in there.items()}
    assert shared <= set().union(*there.values())


def test_formats_of_publish() -> None:
    assert [code(row[0]) for row in table(reference("cli"), "format")] == [one.value for one in Format]


def test_statuses_of_a_group_stand_in_the_order_in_which_they_count() -> None:
    documented = [code(row[0]) for row in table(section(reference("cli"), "Status of a group"), "status")]
    assert sorted(documented) == sorted(Status)
    for status, less in pairwise(documented):
        if less != Status.NO_POSITION:
            assert status_of_group(SimpleNamespace(paused=()), [Status(less), Status(status)]) == status  # type: ignore[arg-type]


def test_exit_codes() -> None:
    documented = {int(row[0]) for row in table(section(reference("cli"), "Exit codes"), "code")}
    ours = {failures.OK, failures.FAILED, failures.USAGE, failures.NOT_FOUND, failures.UNREACHABLE}
    assert documented == ours | {failures.INTERRUPTED, EXIT_CONFIGURATION}


def test_routes() -> None:
    documented = [
        (code(row[0]), code(row[1]), row[2].replace("`", ""), row[3]) for row in table(reference("http"), "method")
    ]
    assert documented == [_documented(route) for route in OPERATIONS]


def _documented(route: Row) -> tuple[str, str, str, str]:
    rights = "none" if route.rights is PUBLIC_RULE else " or ".join(sorted(route.rights or ()))  # type: ignore[arg-type]
    return route.method, route.path, rights, ", ".join(map(str, sorted(route.statuses)))


def test_parameters_of_a_fetch() -> None:
    fetch = next(route for route in OPERATIONS if route.name == "fetch")
    assert fetch.media is not None
    rows = table(section(reference("http"), "Fetch"), "parameter")
    assert [code(row[0]) for row in rows] == [parameter.name for parameter in fetch.media.query]
    stated = {code(row[0]): row[1] for row in rows if row[1].isdigit()}
    assert stated == {p.name: str(p.schema["default"]) for p in fetch.media.query if "default" in p.schema}


def test_fields_of_a_message() -> None:
    """Those of a publish are listed in one sentence."""
    sentence = next(
        part
        for part in section(reference("http"), "Publish").split("\n\n")
        if part.startswith("A message has `value` or `value_base64`")
    )
    listed = re.findall(r"`(\w+)`", sentence.partition("1 to 10,000")[0])
    assert set(listed) == set(shapes.MessageShape.__struct_fields__)


def test_columns() -> None:
    rows = table(section(reference("batches"), "Columns"), "number")
    assert [(int(row[0]), code(row[1])) for row in rows] == list(enumerate(column.name for column in COLUMNS))
    assert [code(row[1]) for row in rows if row[3] == "publisher"] == list(PUBLIC)
    kinds = {code(row[1]): code(row[2]) for row in rows}
    assert kinds == {column.name: _kind(column.type) for column in COLUMNS}


def _kind(kind: pa.DataType) -> str:
    return "map<string, string>" if pa.types.is_map(kind) else str(kind)


def test_invariants() -> None:
    rows = [row for row in table(reference("invariants"), "") if not row[0].startswith("**")]
    assert [row[0] for row in rows] == [f"S{n}" for n in range(1, 27)] + [f"L{n}" for n in range(1, 10)]
    for name, invariant, checked in rows:
        assert invariant.endswith("."), name
        assert "to come" in checked or re.search(r"\]\(../../(tests|prove)/", checked), name


@pytest.mark.parametrize("heading", ["Words in use", "Words to come"])
def test_glossary_is_in_order(heading: str) -> None:
    lines = [line for line in section((DOCS / "glossary.md").read_text(), heading).splitlines() if line]
    terms = [match[1].lower() for line in lines if (match := re.match(r"- \*\*([^*]+)\*\*", line))]
    assert terms == sorted(set(terms))


def test_no_word_is_defined_twice() -> None:
    terms = re.findall(r"\*\*([^*]+)\*\*", (DOCS / "glossary.md").read_text())
    assert len(terms) == len(set(terms))
