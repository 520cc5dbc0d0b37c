"""`lakelog doctor`: checks an installation, and says what to do about each problem."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli import tables
from lakelog.cli.databases import CellOption, DatabaseOption, find_cells, find_database
from lakelog.cli.output import clean, is_watched, print_json, print_line
from lakelog.cli.target import JsonOption
from lakelog.cli.units import parse_duration

if TYPE_CHECKING:
    from lakelog.model.diagnosis import Finding, RemedyStep

_WIDTH = 80
_INDENT = 9
OK, WARNING, FAILED = 0, 1, 2


def doctor(
    database_url: DatabaseOption = None,
    cell: CellOption = None,
    object_store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The object store to check. Default: LAKELOG_OBJECT_STORE."),
    ] = None,
    outbox_url: Annotated[
        list[str] | None,
        typer.Option(
            "--outbox-url",
            metavar="URL",
            help="The database of an application that has an outbox. May be repeated.",
        ),
    ] = None,
    transaction_age: Annotated[
        str, typer.Option(metavar="DURATION", help="Report transactions that are open for longer.")
    ] = "60s",
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Check a server instead: only what it can tell without a database."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check an installation, and say what to do about each problem.

    It checks all databases and the object store, and changes nothing except for a probe in the object store. The
    exit code is 0 if all is well, 1 after a warning, and 2 if a check failed.
    """
    import asyncio

    from lakelog.cli.diagnosing import Parts, diagnose, diagnose_server
    from lakelog.model.diagnosis import FindingStatus, worst

    if url is not None:
        findings = diagnose_server(url)
    else:
        age = parse_duration(transaction_age)
        parts = Parts(
            url=find_database(database_url),
            cells=find_cells(cell),
            outboxes=tuple(outbox_url or ()),
            object_store=object_store,
        )
        options = _given(database_url, cell)
        findings = asyncio.run(diagnose(parts, age.total_seconds(), options))
    status = worst(findings)
    if json:
        print_json({"status": status, "findings": findings})
    else:
        _print(findings)
    raise typer.Exit({FindingStatus.WARNING: WARNING, FindingStatus.FAILED: FAILED}.get(status, OK))


def _given(database_url: str | None, cell: list[str] | None) -> str:
    """Return the options that name the databases, for the commands of remedies. Passwords are left out."""
    import shlex

    options = [] if database_url is None else [f"--database-url {shlex.quote(_without_password(database_url))}"]
    for name, url in (each.split("=", 1) for each in cell or ()):
        options.append(f"--cell {shlex.quote(f'{name}={_without_password(url)}')}")
    return "".join(f" {option}" for option in options)


def _without_password(url: str) -> str:
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    query = "&".join(each for each in parts.query.split("&") if not each.startswith(("password=", "sslpassword=")))
    return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}{at}{hosts}", query=query))


def _print(findings: list[Finding]) -> None:
    width = min(_WIDTH, shutil.get_terminal_size().columns) if is_watched() else _WIDTH
    where = ""
    for finding in findings:
        if finding.where != where:
            print_line(f"{'' if not where else chr(10)}{finding.where}")
            where = finding.where
        _print_wrapped(f"{finding.status:<{_INDENT}}", f"{finding.check}: {clean(finding.measured)}", width)
        for step in finding.remedy:
            _print_step(step, width)


def _print_wrapped(start: str, text: str, width: int) -> None:
    first, *rest = tables.wrap(text, width - _INDENT)
    print_line(start + first)
    for line in rest:
        print_line(" " * _INDENT + line)


def _print_step(step: RemedyStep, width: int) -> None:
    """Print a statement or a command on one line, so that it can be copied; other texts are wrapped."""
    if step.kind == "text":
        _print_wrapped(" " * _INDENT, step.text, width)
    else:
        print_line(f"{' ' * _INDENT}{'psql>' if step.kind == 'sql' else '$'} {clean(step.text)}")
