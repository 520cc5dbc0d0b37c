"""What a subcommand of `scripts/prove` is: its module has one as `COMMAND`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Command:
    """`run` returns the exit status: 0 valid, 1 invalid, 2 unknown."""

    name: str
    about: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
