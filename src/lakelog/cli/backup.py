"""`lakelog backup`: marks before backups of PostgreSQL, and the restore of what files have more than the backup.

The commands work on the database, because servers must not run during a restore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.databases import CellOption, DatabaseOption, find_cells, find_database, find_object_store, with_catalog
from lakelog.cli.output import print_json, print_line, print_result, print_table, say
from lakelog.cli.target import JsonOption
from lakelog.cli.units import parse_duration
from lakelog.errors import Conflict, NotFound
from lakelog.model.display import show_count, show_time
from lakelog.model.names import check_name

if TYPE_CHECKING:
    from lakelog.client.restoring.lost_topics import LostTopic
    from lakelog.client.restoring.restoration import RestoredTopic
    from lakelog.model.backup import BackupMark
    from lakelog.model.topic import Topic
    from lakelog.storage.store import Catalog

app = typer.Typer(no_args_is_help=True, help="Keep files for backups of PostgreSQL, and restore them.")

NameArgument = Annotated[str, typer.Argument(help="The name of the mark, such as 2026-01-31.")]


@app.command()
def begin(
    name: NameArgument,
    keep: Annotated[str, typer.Option(metavar="DURATION", help="How long the backup may be restored.")] = "30d",
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Keep all files that are in use now. Then back up PostgreSQL.

    Sweeps delete no file that the backup refers to, until the mark ends. A file that was unused before the oldest mark
    can still be deleted.
    """
    check_name("name", name)
    duration = parse_duration(keep)

    async def work(catalog: Catalog) -> BackupMark | None:
        return await catalog.orphans.backup_mark(name, duration)

    mark = with_catalog(find_database(database_url), work)
    if mark is None:
        raise Conflict(f"The mark '{name}' has not ended. Use another name, or `lakelog backup end {name}` first.")
    told = f"Files in use now are kept until {show_time(mark.until)}. Back up PostgreSQL now."
    print_result(json, {"name": mark.name, "at": mark.at, "until": mark.until}, told)


@app.command("list")
def list_marks(database_url: DatabaseOption = None, json: JsonOption = False) -> None:
    """List the marks that have not ended."""

    async def work(catalog: Catalog) -> list[BackupMark]:
        return await catalog.orphans.backup_marks()

    marks = with_catalog(find_database(database_url), work)
    if json:
        print_json({"marks": marks})
        return
    rows = [(each.name, show_time(each.at), show_time(each.until)) for each in marks]
    print_table(["name", "at", "until"], rows, empty="No marks. Make one with `lakelog backup begin NAME`.")


@app.command()
def end(name: NameArgument, database_url: DatabaseOption = None, json: JsonOption = False) -> None:
    """End a mark: its backup is not needed any more."""

    async def work(catalog: Catalog) -> bool:
        return await catalog.orphans.backup_mark_end(name)

    if not with_catalog(find_database(database_url), work):
        raise NotFound(f"There is no mark '{name}'. `lakelog backup list` shows the marks.")
    print_result(json, {"ended": name}, f"ended {name}")


@app.command()
def restore(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    database_url: DatabaseOption = None,
    cell: CellOption = None,
    json: JsonOption = False,
) -> None:
    """Continue the log of a restored database with newer files.

    Run it after PostgreSQL was restored from a backup, and before any server starts. Messages of files that the
    database does not know are appended at their offsets. Offsets whose messages are lost are not used again. Topics
    that were created after the backup are named; they are lost.
    """
    import lakelog
    from lakelog.client.restoring.restoration import restore_topics

    url, cells = find_database(database_url), find_cells(cell)
    store = find_object_store(None, url)

    async def work(catalog: Catalog) -> tuple[list[Topic], int]:
        return await catalog.topic_list_all(), await catalog.topic_newest()

    topics, newest = with_catalog(url, work)
    found: list[RestoredTopic] = []
    for project, environment in sorted({(each.scope.project, each.scope.environment) for each in topics}):
        mine = sorted(
            each.name for each in topics if (each.scope.project, each.scope.environment) == (project, environment)
        )
        with lakelog.connect(url, project=project, environment=environment, cells=cells, object_store=store) as log:

            def show(done: RestoredTopic, place: str = f"{project}/{environment}/") -> None:
                for reason in done.ignored:
                    say(f"lakelog: not used: {reason}")
                if not json and not done.is_nothing:
                    print_line(_restored_line(place, done, dry_run))

            found += restore_topics(log, mine, dry_run=dry_run, watch=show)
    lost = _lost(newest, store)
    if json:
        print_json({"dry_run": dry_run, "topics": found, "lost_topics": lost})
    elif all(each.is_nothing for each in found) and not lost:
        print_line("No file has messages that the database does not have.")
    for each in lost:
        say(f"lakelog: {_lost_line(each)}")
    if lost and not dry_run:
        # A new topic with the id of a lost one would share a folder with its files.
        with_catalog(url, lambda catalog: catalog.topic_skip(max(each.incarnation for each in lost)))


def _lost(newest: int, object_store: str | None) -> list[LostTopic]:
    from lakelog.client.restoring.lost_topics import lost_topics
    from lakelog.objectstore import open_store

    return lost_topics(open_store(object_store), newest) if object_store else []


def _lost_line(lost: LostTopic) -> str:
    name = "A topic" if lost.topic is None else f"Topic '{lost.topic}'"
    return (
        f"{name} that was created after the backup is lost. Its folder {lost.folder} in the object store has "
        f"{show_count(lost.files, 'file')} with {show_count(lost.messages, 'message')}, until a sweep deletes them."
    )


def _restored_line(place: str, done: RestoredTopic, dry_run: bool) -> str:
    verb = "would be" if dry_run else "were"
    more = f"; partitions added: {done.partitions}" if done.partitions else ""
    lost = f"; {show_count(done.lost, 'offset')} {verb} filled, because their messages are lost" if done.lost else ""
    return f"{place}{done.topic}: {show_count(done.messages, 'message')} {verb} appended from files{lost}{more}"
