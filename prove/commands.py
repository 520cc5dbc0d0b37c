"""What a subcommand of `scripts/prove` is, and what those share that work for long in a folder of their own."""

from __future__ import annotations

import random
import signal
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True, kw_only=True)
class ProveCommand:
    """A module has one as `COMMAND`. `run` returns the exit status: 0 valid, 1 invalid, 2 unknown."""

    name: str
    about: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


def say(text: str) -> None:
    print(text, flush=True)


def seeded(asked: int | None) -> int:
    """The seed that was asked for, or one by chance."""
    return random.SystemRandom().randrange(1 << 31) if asked is None else asked


def in_folder(name: str, asked: Path | None, work: Callable[[Path], int]) -> int:
    """Works in the folder asked for, or in a new one. An interrupt ends everything that was started."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell may have told its background jobs to ignore the first.
        signal.signal(number, signal.default_int_handler)
    folder = asked or Path(tempfile.mkdtemp(prefix=f"lakelog-prove-{name}-"))
    if folder.exists() and any(folder.iterdir()):
        say(f"{folder} is not empty; choose another folder")
        return 2
    try:
        return work(folder)
    except KeyboardInterrupt:
        say(f"interrupted; everything is ended. What there is of it is in {folder}")
        return 130


def write_json(path: Path, value: Any) -> None:
    """Laid out to be read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))
