"""The tables of pages and actions. Each module of this package has one page with its actions."""

from lakelog.console.page import Action, Download, Page, Stream
from lakelog.console.pages import (
    audit,
    dead_letters,
    group,
    groups,
    marks,
    message,
    messages,
    names,
    overview,
    pipelines,
    seek,
    servers,
    tokens,
    topic,
    topics,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    messages.PAGE,
    message.PAGE,
    groups.PAGE,
    group.PAGE,
    seek.PAGE,
    dead_letters.PAGE,
    dead_letters.REDRIVE,
    pipelines.PAGE,
    servers.PAGE,
    tokens.PAGE,
    audit.PAGE,
    marks.PAGE,
    names.PAGE,
)
"""The pages, in the order of the navigation."""

DOWNLOADS: tuple[Download, ...] = messages.DOWNLOADS
"""The files that pages offer."""

STREAMS: tuple[Stream, ...] = (topic.STREAM,)
"""The events that pages listen to."""

ACTIONS: tuple[Action, ...] = (
    *topic.ACTIONS,
    *group.ACTIONS,
    *seek.ACTIONS,
    *dead_letters.ACTIONS,
    *tokens.ACTIONS,
    *marks.ACTIONS,
)
"""Every change that the console can make."""
