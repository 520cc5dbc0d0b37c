"""`lakelog tokens`: creates, lists and revokes tokens directly in the database, so the first token needs no token."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.databases import DatabaseOption, find_database, with_catalog
from lakelog.cli.output import print_fields, print_json, print_result, print_table, say
from lakelog.cli.target import JsonOption
from lakelog.cli.units import parse_duration, show_age, show_since, show_time
from lakelog.errors import NotFound
from lakelog.model.names import check_name
from lakelog.model.token import Right, Token, hash_secret, new_secret

if TYPE_CHECKING:
    from lakelog.storage.store import Catalog

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens.")

ProjectOption = Annotated[str, typer.Option(help="The project of the token.")]
EnvironmentOption = Annotated[str, typer.Option(help="The environment of the token.")]


@app.command()
def create(
    name: Annotated[str, typer.Option(help="The purpose of the token; `tokens list` shows it.")],
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    rights: Annotated[
        str, typer.Option(help="Some of read, publish and manage, separated by commas.")
    ] = "read,publish",
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="When the token expires, such as 90d. Default: never.")
    ] = None,
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Create a token and print its secret, which is not shown again."""
    given = parse_rights(rights)
    duration = parse_duration(expires) if expires else None
    check_name("project", project)
    check_name("environment", environment)
    now = datetime.now(UTC)
    token = new_token(name, given, now, now + duration if duration else None)
    secret = new_secret()

    async def work(catalog: Catalog) -> None:
        scope = await catalog.scope_create(project, environment)
        await catalog.token_create(scope, token, hash_secret(secret))

    with_catalog(find_database(database_url), work)
    shown = {"project": project, "environment": environment, "secret": secret}
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


@app.command("list")
def list_tokens(
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """List the tokens of an environment, without their secrets."""

    async def work(catalog: Catalog) -> list[Token]:
        scope = await catalog.scope_find(project, environment)
        return await catalog.token_list(scope) if scope else []

    tokens = with_catalog(find_database(database_url), work)
    if json:
        print_json({"tokens": [_shape(token) for token in tokens]})
        return
    print_table(
        ["id", "name", "rights", "age", "expires"],
        [(token.id, token.name, _rights(token), show_since(token.created_at), expires_in(token)) for token in tokens],
        empty=f"No tokens in {project}/{environment}. Create one with `lakelog tokens create --name NAME`.",
    )


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="The token's id, as `lakelog tokens list` shows it.")],
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Revoke a token. Servers stop accepting it within seconds."""

    async def work(catalog: Catalog) -> bool:
        scope = await catalog.scope_find(project, environment)
        return scope is not None and await catalog.token_revoke(scope, id)

    if not with_catalog(find_database(database_url), work):
        raise NotFound(
            f"Token '{id}' does not exist in {project}/{environment}. `lakelog tokens list` shows all tokens."
        )
    print_result(json, {"revoked": id}, f"revoked {id}")


def new_token(name: str, rights: frozenset[Right], now: datetime, expires_at: datetime | None) -> Token:
    return Token(id=secrets.token_hex(6), name=name, rights=rights, created_at=now, expires_at=expires_at)


def parse_rights(text: str) -> frozenset[Right]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [right.value for right in Right]
    if not names or not set(names) <= set(known):
        raise typer.BadParameter(f"Rights must be some of {', '.join(known)}; not {text!r}.", param_hint="--rights")
    return frozenset(Right(name) for name in names)


def _rights(token: Token) -> str:
    return ",".join(right.value for right in Right if right in token.rights)


def expires_in(token: Token) -> str:
    if token.expires_at is None:
        return "never"
    now = datetime.now(UTC)
    return "expired" if token.is_over(now) else f"in {show_age(token.expires_at - now)}"


def _shape(token: Token) -> dict[str, object]:
    return asdict(token) | {"rights": _rights(token).split(",")}
