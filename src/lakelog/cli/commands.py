"""Commands that are built when they are needed, because typer takes over 0.1 s to build all of them."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from lakelog.cli.help import tidy

Source = typer.Typer | Callable[..., None]
"""A group of commands, or the function of one command."""


class OnDemand(UserDict[str, Any]):
    """Commands by name, in the order in which help shows them."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        super().__init__(sources)
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _built(name, self.data[name])
        return self._built[name]


class OnDemandGroup(TyperGroup):
    """A group whose commands are built on demand."""

    sources: ClassVar[Mapping[str, Source]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        tidy(self)
        self.commands = OnDemand(self.sources)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Show names and summaries, for which no command is built."""
        outlines: dict[str, Any] = {
            name: TyperCommand(name, help=_help(source)) for name, source in self.sources.items()
        }
        TyperGroup(commands=outlines).format_commands(ctx, formatter)


def _built(name: str, source: Source) -> Any:
    holder = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(source, typer.Typer):
        holder.add_typer(source, name=name)
    else:
        holder.command(name)(source)
    command = typer.main.get_group(holder).commands[name]
    tidy(command)
    return command


def _help(source: Source) -> str | None:
    return str(source.info.help) if isinstance(source, typer.Typer) else inspect.getdoc(source)
