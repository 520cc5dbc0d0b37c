"""`lakelog tokens`: creates, lists and revokes tokens directly in the database, so the first token needs no token.

With `--child`, the commands call a server with a token, and work with the children of that token.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.databases import DatabaseOption, find_database, with_catalog
from lakelog.cli.output import print_fields, print_json, print_result, print_table, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_duration
from lakelog.errors import NotFound
from lakelog.model.display import show_age, show_since, show_time
from lakelog.model.kinds import Right
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.names import check_name

if TYPE_CHECKING:
    from lakelog.model.audit import State
    from lakelog.model.token import Token
    from lakelog.model.topic import Scope
    from lakelog.storage.store import Catalog

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens.")

ProjectOption = Annotated[str, typer.Option(help="The project of the token.")]
EnvironmentOption = Annotated[str, typer.Option(help="The environment of the token.")]
ChildOption = Annotated[
    bool, typer.Option("--child", help="Work with the children of your token (--url, --token), without the database.")
]


@app.command()
def create(
    name: Annotated[str, typer.Option(help="The purpose of the token; `tokens list` shows it.")],
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    rights: Annotated[
        str | None,
        typer.Option(
            help="Some of read, publish, manage, inspect and metrics, separated by commas. "
            "Default: read,publish; of a child, those of its parent."
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="When the token expires, such as 90d. Default: never; a child, after 12h."
        ),
    ] = None,
    child: ChildOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Create a token and print its secret, which is not shown again."""
    from lakelog.model.token import MAX_CHILD_MS, hash_secret, new_secret, new_token

    duration = parse_duration(expires) if expires else None
    if child:
        with open_log(url, token) as log:
            issued = log.tokens.create(
                name,
                parse_rights(rights) if rights else None,
                expires_in=duration or timedelta(milliseconds=MAX_CHILD_MS),
            )
        _print_created(issued, {"secret": issued.secret}, json)
        return
    given = parse_rights(rights or "read,publish")
    check_name("project", project)
    check_name("environment", environment)
    now = datetime.now(UTC)
    made = new_token(name, given, now, now + duration if duration else None)
    secret = new_secret()

    async def work(catalog: Catalog) -> None:
        scope = await catalog.scope_create(project, environment)
        if not {Right.INSPECT, Right.METRICS}.isdisjoint(given):
            check_level(catalog.level, FeatureLevel.FOURTH, "The rights inspect and metrics")
        after = {"id": made.id, "rights": [*made.rights], "parent": None}
        with _recorded(scope, "create_token", f"created token {name}", after):
            await catalog.token_create(scope, made, hash_secret(secret))

    with_catalog(find_database(database_url), work)
    _print_created(made, {"project": project, "environment": environment, "secret": secret}, json)


@app.command("list")
def list_tokens(
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    child: ChildOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """List the tokens of an environment, without their secrets."""
    if child:
        with open_log(url, token) as log:
            _print_tokens(log.tokens.list(), "No child tokens. Create one with `lakelog tokens create --child`.", json)
        return

    async def work(catalog: Catalog) -> list[Token]:
        scope = await catalog.scope_find(project, environment)
        return await catalog.token_list(scope) if scope else []

    tokens = with_catalog(find_database(database_url), work)
    empty = f"No tokens in {project}/{environment}. Create one with `lakelog tokens create --name NAME`."
    _print_tokens(tokens, empty, json)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="The token's id, as `lakelog tokens list` shows it.")],
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    child: ChildOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Revoke a token and its children. Servers stop accepting them within seconds."""
    if child:
        with open_log(url, token) as log:
            log.tokens.revoke(id)
        print_result(json, {"revoked": id}, f"revoked {id}")
        return

    async def work(catalog: Catalog) -> bool:
        scope = await catalog.scope_find(project, environment)
        if scope is None:
            return False
        with _recorded(scope, "revoke_token", f"revoked token {id}"):
            return await catalog.token_revoke(scope, id)

    if not with_catalog(find_database(database_url), work):
        raise NotFound(
            f"Token '{id}' does not exist in {project}/{environment}. `lakelog tokens list` shows all tokens."
        )
    print_result(json, {"revoked": id}, f"revoked {id}")


def _recorded(scope: Scope, operation: str, text: str, after: State | None = None) -> AbstractContextManager[None]:
    """Record a change of this command, whose actor is the user of the database."""
    from lakelog.model.audit import AuditEntry, AuditOutcome
    from lakelog.storage.audit import Change, recording

    entry = AuditEntry(
        operation=operation, text=text, outcome=AuditOutcome.DONE, address=socket.gethostname(), after=after
    )
    return recording(Change(scope, entry))


def parse_rights(text: str) -> tuple[Right, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [right.value for right in Right]
    if not names or not set(names) <= set(known):
        raise typer.BadParameter(f"Rights must be some of {', '.join(known)}; not {text!r}.", param_hint="--rights")
    return tuple(Right(name) for name in names)


def _print_created(token: Token, shown: dict[str, str], json: bool) -> None:
    if json:
        print_json({**_shape(token), **shown})
        return
    print_fields(
        {
            "id": token.id,
            "name": token.name,
            "rights": _rights(token),
            "expires": show_time(token.expires_at) or "never",
            **shown,
        }
    )
    say("Save the secret: it cannot be shown again. Use it as LAKELOG_TOKEN.")


def _print_tokens(tokens: Sequence[Token], empty: str, json: bool) -> None:
    if json:
        print_json({"tokens": [_shape(token) for token in tokens]})
        return
    print_table(
        ["id", "name", "rights", "age", "expires", "child of"],
        [
            (each.id, each.name, _rights(each), show_since(each.created_at), expires_in(each), each.parent or "")
            for each in tokens
        ],
        empty=empty,
    )


def _rights(token: Token) -> str:
    return ",".join(token.rights)


def expires_in(token: Token) -> str:
    if token.expires_at is None:
        return "never"
    now = datetime.now(UTC)
    return "expired" if token.is_over(now) else f"in {show_age(token.expires_at - now)}"


def _shape(token: Token) -> dict[str, object]:
    from lakelog.model.token import Token

    return {name: getattr(token, name) for name in Token.__struct_fields__}
