"""`lakelog story`: what happened to one message in each group, with the same steps as in the console."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import print_json, print_line, print_pairs, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.model.display import show_since, show_time

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.model.message_story import MessageStory, StoryEvent

_PLACE = re.compile(r"(\d{1,9}):(\d{1,19})")


def story(
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE", help="The message's id, or with --topic its place as `lakelog tail` shows it."
        ),
    ],
    topic: Annotated[str | None, typer.Option(help="The topic of the message.", autocompletion=complete_topic)] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show what happened to one message in each group.

    MESSAGE is an id such as 12-3-4567, or PARTITION:OFFSET with --topic.
    """
    with open_log(url, token) as log:
        found = log.message_story(_id_of(log, message, topic), topic=topic)
    if json:
        from msgspec import to_builtins

        print_json(to_builtins(found))
    else:
        print_story(found)


def _id_of(log: Lakelog, message: str, topic: str | None) -> str:
    """Return the id of the message at a place, or the given id."""
    place = _PLACE.fullmatch(message)
    if place is None:
        return message
    if topic is None:
        raise typer.BadParameter(f"A place such as {message} needs --topic.")
    from lakelog.model.message import message_id

    return message_id(log.topic(topic).describe().incarnation, int(place[1]), int(place[2]))


def print_story(found: MessageStory) -> None:
    """Print the message, then the steps of each group."""
    appended = (
        f"{show_time(found.appended_at)} ({show_since(found.appended_at)} ago)" if found.appended_at else "unknown"
    )
    fields = [("id", found.id), ("status", found.status)]
    if found.topic is not None:
        fields += [("topic", found.topic), ("place", f"{found.partition}:{found.offset}"), ("appended", appended)]
    if found.lineage:
        fields.append(("redriven from", found.lineage))
    print_pairs(fields)
    for lane in found.lanes:
        print_line("")
        print_line(f"{lane.group}: {lane.state}")
        print_pairs(
            [pair for event in lane.events for pair in _steps(event, found.id, is_last=event is lane.events[-1])]
        )
    if not found.lanes:
        say("No group reads the topic, or the message is not in the log.")
    elif any(event.traceback for lane in found.lanes for event in lane.events):
        say("--json shows the tracebacks.")


def _steps(event: StoryEvent, id: str, *, is_last: bool) -> Iterator[tuple[str, str]]:
    """Yield the time and the text of an event, and its error below."""
    text = event.text
    if event.next_at is not None and event.kind in ("failed", "timed_out", "lost"):
        text += f" Next attempt from {show_time(event.next_at)} on."
    if event.message_id != id:
        text += f" ({event.message_id})"
    time = show_time(event.at) if event.at is not None else "now" if is_last else "time not recorded"
    yield f"  {time}", text
    if event.error:
        yield "", event.error
