"""`lakelog outbox`: installs outboxes in the databases of applications, relays them, and shows rejected messages."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelog.cli.databases import CellOption, find_cells, find_database
from lakelog.cli.output import YesOption, confirm, print_json, print_line, print_result, print_table
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.model.display import show_count, show_since

app = typer.Typer(no_args_is_help=True, help="Publish in the transactions of your own database.")
rejected_app = typer.Typer(no_args_is_help=True, help="List, retry and discard rejected messages.")
app.add_typer(rejected_app, name="rejected")

IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="The ids of messages, as `outbox rejected list` shows them.")
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="Only messages to this topic.", autocompletion=complete_topic)
]

ApplicationOption = Annotated[
    str, typer.Option("--database-url", metavar="URL", help="The application's database, postgresql://….")
]


@app.command()
def install(
    database_url: ApplicationOption,
    project: Annotated[
        str | None, typer.Option(help="The project of the topics.", show_default="as before, or default")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="The environment of the topics.", show_default="as before, or default")
    ] = None,
    grant_to: Annotated[
        str | None, typer.Option(metavar="ROLE", help="A role that may publish, besides the one that installs.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create or update the outbox in your database.

    The relay connects as the same role. A server relays the outbox in its own database, and those in
    LAKELOG_OUTBOX_URLS.
    """
    import asyncio

    from lakelog.model.names import check_name
    from lakelog.storage.postgres import install_outbox

    url = find_database(database_url)
    for name, text in (("project", project), ("environment", environment)):
        if text is not None:
            check_name(name, text)
    done = asyncio.run(install_outbox(url, project=project, environment=environment, grant_to=grant_to))
    place = f"{done.project}/{done.environment}"
    line = f"The outbox of {place} is ready. Publish with lakelog_outbox.publish(topic, value)."
    print_result(json, done, line)


@app.command()
def relay(
    database_url: ApplicationOption,
    log_database_url: Annotated[
        str | None,
        typer.Option(
            "--log-database-url", metavar="URL", help="The database of the log. Default: LAKELOG_DATABASE_URL."
        ),
    ] = None,
    cell: CellOption = None,
) -> None:
    """Move messages from an outbox to the log, until SIGTERM.

    Servers do this too. Any number of relays may run: one of them works, and another one takes over when it ends.
    """
    import asyncio

    from lakelog.server import configure_logging

    configure_logging("INFO", "console")
    asyncio.run(_relay(find_database(database_url), find_database(log_database_url), find_cells(cell)))


async def _relay(application: str, log: str, cells: dict[str, str]) -> None:
    import asyncio
    import signal

    from lakelog.cli.databases import patiently
    from lakelog.engine import Engine
    from lakelog.maintenance import OutboxRelays
    from lakelog.storage.postgres import PostgresOutbox, open_stores

    catalog, stores = await patiently(lambda: open_stores(log, cells))
    engine = Engine(catalog, stores)
    relays = OutboxRelays(engine, [PostgresOutbox(application)])
    stopped = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    await engine.start()
    relays.start()
    print_line("relaying; stop with Ctrl-C")
    try:
        await stopped.wait()
    finally:
        await relays.stop()
        await engine.close()


@rejected_app.command("list")
def list_rejected(
    topic: TopicOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most N messages, the oldest first.")] = 100,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """List messages that the log refused after they were published."""
    with open_log(url, token) as log:
        found = log.rejected.list(topic, limit=limit)
    if json:
        from lakelog.wire.rejected_shapes import REJECTED

        print_json({"messages": [REJECTED.write(each) for each in found]})
        return
    print_table(
        ["id", "topic", "key", "age", "reason"],
        [
            (
                each.id,
                each.topic,
                "-" if each.key is None else each.key.decode(errors="replace"),
                show_since(each.at),
                each.reason,
            )
            for each in found
        ],
        empty="There are no rejected messages.",
        cut=["reason"],
    )


@rejected_app.command("retry")
def retry_rejected(
    ids: IdsArgument = None,
    topic: TopicOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Publish rejected messages again: those with the ids, or of a topic."""
    _check_choice(ids, topic)
    with open_log(url, token) as log:
        done = log.rejected.retry(ids or (), topic=topic)
    line = f"published {show_count(done.changed, 'message')}"
    if done.refused:
        line += f"; {show_count(done.refused, 'message')} refused again: {done.reason}"
    print_result(json, {"changed": done.changed, "refused": done.refused, "reason": done.reason}, line)
    if done.refused:
        raise typer.Exit(1)


@rejected_app.command("discard")
def discard_rejected(
    ids: IdsArgument = None,
    topic: TopicOption = None,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Remove rejected messages: those with the ids, or of a topic."""
    _check_choice(ids, topic)
    if not ids and not yes:
        confirm(f"Discard the rejected messages of topic {topic}? They are never published.")
    with open_log(url, token) as log:
        done = log.rejected.discard(ids or (), topic=topic)
    print_result(json, {"changed": done.changed}, f"discarded {show_count(done.changed, 'message')}")


def _check_choice(ids: list[str] | None, topic: str | None) -> None:
    if not ids and topic is None:
        raise typer.BadParameter("Give the ids of messages, or --topic.", param_hint="ID")
