"""Asks a person before something that cannot be taken back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lakelog.cli.output import say

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str) -> None:
    """Returns if the answer is yes; otherwise the command ends. Where nobody can answer, it says how to go ahead."""
    if not sys.stdin.isatty():
        say("lakelog: This asks first, and nobody is there to answer; give --yes to go ahead.")
        raise typer.Exit(2)
    if not typer.confirm(question, err=True):
        say("Nothing was changed.")
        raise typer.Exit(1)
