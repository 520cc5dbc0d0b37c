"""Asks a person before something that cannot be taken back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lakelog.cli.output import say

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str) -> None:
    """Return if the answer is yes; otherwise end the command. Without a terminal, say how to go ahead."""
    if not sys.stdin.isatty():
        say("lakelog: This needs a confirmation, and there is no terminal to ask on. Give --yes to go ahead.")
        raise typer.Exit(2)
    if not typer.confirm(question, err=True):
        say("Nothing was changed.")
        raise typer.Exit(1)
