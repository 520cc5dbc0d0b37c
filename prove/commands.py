"""The subcommand type of `scripts/prove`, and helpers of the commands that work in a folder."""

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
    """A subcommand: the `COMMAND` of a module. `run` returns the exit status: 0 valid, 1 invalid, 2 unknown."""

    name: str
    about: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


def say(text: str) -> None:
    print(text, flush=True)


def seeded(asked: int | None) -> int:
    """Return the given seed, or a random one."""
    return random.SystemRandom().randrange(1 << 31) if asked is None else asked


def in_folder(name: str, asked: Path | None, work: Callable[[Path], int]) -> int:
    """Run the work in the given folder, or in a new one. An interrupt ends all started processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell may have told its background jobs to ignore SIGINT.
        signal.signal(number, signal.default_int_handler)
    folder = asked or Path(tempfile.mkdtemp(prefix=f"lakelog-prove-{name}-"))
    if folder.exists() and any(folder.iterdir()):
        say(f"{folder} is not empty. Choose another folder.")
        return 2
    try:
        return work(folder)
    except KeyboardInterrupt:
        say(f"interrupted; all processes are stopped. Partial results are in {folder}")
        return 130


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))
