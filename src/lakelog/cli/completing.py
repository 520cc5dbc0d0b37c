"""Tab completion of topic and group names. It prints no errors, because a shell would show them as candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from lakelog import Lakelog

_SECONDS = 1.0
"""Timeout of the call that fetches the names."""


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of topics that begin with `incomplete`."""
    return _names(context, incomplete, lambda log: (topic.name for topic in log.topics()))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of groups that begin with `incomplete`."""
    return _names(context, incomplete, lambda log: (group.name for group in log.groups()))


def _names(context: typer.Context, incomplete: str, find: Callable[[Lakelog], Iterable[str]]) -> list[str]:
    import contextlib
    import io

    with contextlib.redirect_stderr(io.StringIO()):
        try:
            import lakelog
            from lakelog.cli.target import find_target

            found = find_target(context.params.get("url"), context.params.get("token"))
            with lakelog.connect(found.url, token=found.token or "", timeout=_SECONDS) as log:
                return [name for name in find(log) if name.startswith(incomplete)]
        except Exception:
            return []
