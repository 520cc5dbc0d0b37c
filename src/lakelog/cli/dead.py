"""`lakelog dead`: lists, shows, redrives, discards and purges dead letters."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.formats import Format
from lakelog.cli.output import YesOption, clean, confirm, print_fields, print_json, print_line, print_table, say
from lakelog.cli.publish import read_option
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_group, complete_topic, open_log
from lakelog.cli.units import parse_duration, parse_rate
from lakelog.model.display import show_count, show_since, show_time
from lakelog.model.kinds import DeadLetterState

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.client._sync.dead_letters import DeadLetters
    from lakelog.model.dead_letters import DeadLetter, Redriven
    from lakelog.wire.dead_letter_shapes import DeadLetterShape

app = typer.Typer(no_args_is_help=True, help="List, show, redrive, discard and purge dead letters.")

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group of the dead letters.", autocompletion=complete_group)
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The message's id, as `dead list` shows it.")]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="Only messages of this topic.", autocompletion=complete_topic)
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only dead letters that match, such as: error like '%timeout%' and failures > 3",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="FINGERPRINT", help="Only one cause, as `dead clusters` shows it."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Include messages that were already redriven three times.")]

_FEW = 10
"""Up to this many dead letters may be discarded by id without confirmation."""
_MOST_COUNTED = 10_000


@app.command("list")
def list_dead(
    group: GroupArgument,
    topic: TopicOption = None,
    where: WhereOption = None,
    cluster: ClusterOption = None,
    state: Annotated[DeadLetterState, typer.Option(help="Only dead letters in this state.")] = DeadLetterState.DEAD,
    limit: Annotated[int, typer.Option(min=1, help="Show at most N dead letters.")] = 100,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """List the dead letters of a group and their errors."""
    with open_log(url, token) as log:
        found = _chosen(log, group, topic, where, cluster).list(limit, state=state)
    if json:
        print_json({"dead_letters": [_shape(letter) for letter in found]})
        return
    print_table(
        ["id", "topic", "key", "failures", "age", "error"],
        [
            (
                letter.id,
                letter.topic,
                "-" if letter.key is None else letter.key.decode(errors="replace"),
                letter.failures,
                show_since(letter.at),
                letter.error,
            )
            for letter in found
        ],
        empty=f"Group {group} has no dead letters{'' if state is DeadLetterState.DEAD else f' that were {state}'}.",
        cut=["error"],
    )
    if len(found) == limit:
        say(f"There may be more. Show them with --limit {limit * 10}.")


@app.command()
def clusters(
    group: GroupArgument,
    topic: TopicOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most N causes.")] = 50,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Count the dead letters of a group by cause.

    Numbers, ids, host names and the lines of the code do not make another cause.
    """
    with open_log(url, token) as log:
        found = log.group(group).dead_letters(topic).clusters(limit)
    if json:
        print_json(found)
        return
    print_table(
        ["cluster", "count", "last", "example", "error"],
        [
            (each.fingerprint or "-", f"{each.count:,}", show_since(each.last_at), each.example, each.pattern)
            for each in found.clusters
        ],
        empty=f"Group {group} has no dead letters.",
        cut=["error"],
    )


@app.command()
def show(
    group: GroupArgument,
    id: IdArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show one dead letter with its message and traceback."""
    with open_log(url, token) as log:
        letter = log.group(group).dead_letters().find(id)
    if json:
        print_json(_shape(letter))
    else:
        _print_letter(letter)


@app.command()
def retry(
    group: GroupArgument,
    id: IdArgument,
    value: Annotated[
        str | None, typer.Option(help="Publish this value instead: JSON if it is an object or array, else text.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to read --value, as for `lakelog publish`.")] = Format.AUTO,
    force: ForceOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Publish one dead letter again, with its own value or another.

    Only its group receives the message.
    """
    given, content_type = (None, None) if value is None else _repaired(value, format)
    with open_log(url, token) as log:
        done = log.group(group).dead_letters().retry(id, value=given, content_type=content_type, force=force)
    if json:
        print_json(done)
    else:
        print_line(f"dead letter {id} is published again for group {group}")


def _repaired(value: str, wanted: Format) -> tuple[bytes, str | None]:
    """Return the bytes of a --value and their content type; None keeps the content type of the message."""
    from lakelog.client.publishing.codec import encode_any

    if wanted is Format.MESSAGES:
        raise typer.BadParameter("A dead letter keeps its key. Give only a value.", param_hint="--format")
    raw, content_type = encode_any(read_option(value, wanted, None).value)
    if raw is None:
        raise typer.BadParameter("A value must not be null. To drop it, use `dead discard`.", param_hint="--value")
    return raw, content_type


@app.command()
def redrive(
    group: GroupArgument,
    topic: TopicOption = None,
    where: WhereOption = None,
    cluster: ClusterOption = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="The highest rate, such as 100/s or 30/m.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Publish at most N dead letters.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be published, up to 10,000.")
    ] = False,
    force: ForceOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Publish dead letters again for their group.

    Only their group receives the messages. All dead letters are published, unless --topic, --cluster, --where or
    --limit is given.

    On a terminal it shows progress; in a pipe, or with --json, it prints a summary as JSON.
    """
    per_second = parse_rate(rate) if rate else None
    json = json or not sys.stdout.isatty()
    with open_log(url, token, patient=True) as log:
        letters = _chosen(log, group, topic, where, cluster)
        if dry_run:
            done = letters.redrive(dry_run=True, limit=limit, force=force)
        else:
            done = _redrive(letters, {"rate": per_second, "limit": limit, "force": force})
    if json:
        print_json(done)
    else:
        verb = "would be published" if dry_run else "published"
        more = ", and more" if dry_run and done.has_more else ""
        print_line(f"{show_count(done.redriven, 'dead letter')}{more} {verb} again for group {group}")
    _report_refused(done, group, is_stopped=done.has_more and (limit is None or done.redriven < limit))


def _report_refused(done: Redriven, group: str, *, is_stopped: bool) -> None:
    for refused in done.refusals[:_FEW]:
        say(f"lakelog: {clean(refused.id)} is skipped: {clean(refused.reason)}")
    if done.refused:
        say(f"lakelog: {show_count(done.refused, 'dead letter')} refused; `lakelog dead show {group} ID` shows why.")
    if done.refused and is_stopped and not done.dry_run:
        say(
            "lakelog: More dead letters follow the refused ones. Exclude the refused ones with --where, or "
            "give --force."
        )
    if done.refused and not done.dry_run:
        raise typer.Exit(1)


@app.command()
def discard(
    group: GroupArgument,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID", help="The dead letters to discard. Default: those that --topic and --where select."
        ),
    ] = None,
    topic: TopicOption = None,
    where: WhereOption = None,
    cluster: ClusterOption = None,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Discard dead letters permanently.

    `dead list --state discarded` still shows them.
    """
    if ids and (topic or where or cluster):
        raise typer.BadParameter("Give IDs, or --topic, --cluster and --where, not both.")
    with open_log(url, token) as log:
        letters = _chosen(log, group, topic, where, cluster)
        if not yes:
            _ask(letters, group, ids or [])
        count = letters.discard(*(ids or ()))
    if json:
        print_json({"discarded": count})
    else:
        print_line(f"discarded {show_count(count, 'dead letter')} of group {group}")


@app.command()
def purge(
    group: GroupArgument,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="DURATION", help="Only dead letters that died at least this long ago, such as 7d."
        ),
    ],
    topic: TopicOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Delete dead letters that are redriven or discarded.

    Dead letters in the state dead stay.
    """
    age = parse_duration(older_than)
    with open_log(url, token) as log:
        count = _chosen(log, group, topic).purge(older_than=age)
    if json:
        print_json({"purged": count})
    else:
        print_line(f"purged {show_count(count, 'dead letter')} of group {group}")


def _shape(letter: DeadLetter) -> DeadLetterShape:
    from lakelog.wire.dead_letter_shapes import LETTER

    return LETTER.write(letter)


def _chosen(
    log: Lakelog, group: str, topic: str | None, where: str | None = None, cluster: str | None = None
) -> DeadLetters:
    letters = log.group(group).dead_letters(topic)
    letters = letters.cluster(cluster) if cluster else letters
    return letters.where(where) if where else letters


def _redrive(letters: DeadLetters, options: dict[str, Any]) -> Redriven:
    from lakelog.cli.publish import Progress

    expected = None
    if sys.stderr.isatty():
        look = letters.redrive(dry_run=True, limit=options["limit"], force=options["force"])
        expected = None if look.has_more else look.redriven
    with Progress(total_bytes=expected) as bar:

        def advance(total: Redriven) -> None:
            while bar.count < total.redriven:
                bar.add(1)

        try:
            return letters.redrive(**options, progress=advance)
        except KeyboardInterrupt:
            say(f"Stopped; {show_count(bar.count, 'dead letter')} published again.")
            raise


def _ask(letters: DeadLetters, group: str, ids: list[str]) -> None:
    """Ask for confirmation, unless there is nothing to discard or only a few ids are given."""
    count = len(ids) or len(letters.list(_MOST_COUNTED + 1))
    if 0 < len(ids) <= _FEW or not count:
        return
    many = f"more than {_MOST_COUNTED:,} dead letters" if count > _MOST_COUNTED else show_count(count, "dead letter")
    confirm(f"Discard {many} of group {group}? This cannot be undone.")


def _print_letter(letter: DeadLetter) -> None:
    from lakelog.cli import messages

    fields: dict[str, object] = {
        "id": letter.id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "state": letter.state,
        "error": letter.error,
        "deliveries": letter.deliveries,
        "failures": letter.failures,
        "given up": f"{show_time(letter.at)} ({show_since(letter.at)} ago)",
        "last owner": letter.owner or "none",
        "key": "none" if letter.key is None else letter.key.decode(errors="replace"),
        "content type": letter.content_type or "none",
    }
    if letter.lineage:
        fields["redriven from"] = letter.lineage
    if letter.redriven_to:
        fields["redriven to"] = letter.redriven_to
    fields |= {f"header {name}": text for name, text in letter.headers.items()}
    print_fields(fields | {"value": messages.shown(letter.raw)})
    if letter.traceback:
        print_line("traceback")
        for line in letter.traceback.splitlines():
            print_line(f"  {clean(line)}".rstrip())
