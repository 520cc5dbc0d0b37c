"""The tables of pages and actions. Each module of this package has one page with its actions."""

from lakelog.console.page import Action, Page
from lakelog.console.pages import (
    audit,
    group,
    groups,
    marks,
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
    groups.PAGE,
    group.PAGE,
    seek.PAGE,
    pipelines.PAGE,
    servers.PAGE,
    tokens.PAGE,
    audit.PAGE,
    marks.PAGE,
    names.PAGE,
)
"""The pages, in the order of the navigation."""

ACTIONS: tuple[Action, ...] = (*topic.ACTIONS, *group.ACTIONS, *seek.ACTIONS, *tokens.ACTIONS, *marks.ACTIONS)
"""Every change that the console can make."""
