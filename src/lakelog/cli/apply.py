"""`lakelog apply`: makes topics and groups as a file describes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import YesOption, confirm, print_json, print_line, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.model.display import show_count

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.cli.topic_files.planning import Change


def apply(
    file: Annotated[Path, typer.Argument(help="The file with topics and groups, in YAML.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete topics and groups that the file does not have, with their messages.")
    ] = False,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Make topics and groups as a file describes them.

    Settings that the file does not have do not change; null is the default. Nothing is deleted without --prune.
    """
    from lakelog.cli.topic_files.applying import apply_change, check_schemas, read_present
    from lakelog.cli.topic_files.planning import check_prune, make_plan
    from lakelog.cli.topic_files.views import described, summary
    from lakelog.cli.topic_files.wanted import read_wanted

    wanted = read_wanted(file)
    with open_log(url, token) as log:
        present = read_present(log, wanted)
        if prune:
            check_prune(wanted, present)
        plan = make_plan(wanted, present, prune=prune)
        check_schemas(log, plan, wanted)
        if not json:
            _print(plan)
        if not dry_run:
            _confirm_deletions(log, plan, yes)
            for change in plan:
                apply_change(log, change)
    if json:
        print_json({"dry_run": dry_run, "changes": [described(change) for change in plan]})
    else:
        say(summary(plan, dry_run))


def _print(plan: list[Change]) -> None:
    from lakelog.cli.topic_files.views import line_of

    for change in plan:
        print_line(line_of(change))


def _confirm_deletions(log: Lakelog, plan: list[Change], yes: bool) -> None:
    from lakelog.cli.topic_files.planning import Action, Kind

    deleted = [change for change in plan if change.action is Action.DELETE]
    if not deleted or yes:
        return
    topics = [change.name for change in deleted if change.kind is Kind.TOPIC]
    messages = sum(
        part.high_watermark - part.log_start for name in topics for part in log.topic(name).describe().partition_list
    )
    groups = len(deleted) - len(topics)
    what = " and ".join(
        each
        for each in (
            f"{show_count(len(topics), 'topic')} with {show_count(messages, 'message')}" if topics else "",
            f"{show_count(groups, 'group')} with their progress" if groups else "",
        )
        if each
    )
    confirm(f"Delete {what}? This cannot be undone.")
