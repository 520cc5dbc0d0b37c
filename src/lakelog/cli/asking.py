"""Confirmation prompts for commands that cannot be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lakelog.cli.output import say

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str) -> None:
    """Ask for confirmation, and exit unless the answer is yes. Without a terminal, exit with a hint to use --yes."""
    if not sys.stdin.isatty():
        say("lakelog: This command asks for confirmation, and there is no terminal. Give --yes to run it anyway.")
        raise typer.Exit(2)
    if not typer.confirm(question, err=True):
        say("Nothing was changed.")
        raise typer.Exit(1)
