"""The tables of pages and actions. Each module of this package has one page with its actions."""

from lakelog.console.page import Action, Page
from lakelog.console.pages import group, groups, names, overview, seek, topic, topics

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    groups.PAGE,
    group.PAGE,
    seek.PAGE,
    names.PAGE,
)
"""The pages, in the order of the navigation."""

ACTIONS: tuple[Action, ...] = (*topic.ACTIONS, *group.ACTIONS, *seek.ACTIONS)
"""Every change that the console can make."""
