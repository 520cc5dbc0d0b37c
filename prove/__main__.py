"""The command line: `scripts/prove COMMAND`. Each command is the `COMMAND` of a module listed here."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from prove.commands import ProveCommand

_MODULES = (
    "prove.check_command",
    "prove.make_command",
    "prove.simulation.command",
    "prove.lab.command",
    "prove.mutants.command",
    "prove.drill_command",
    "prove.soak.command",
    "prove.hostile.command",
    "prove.upgrade.command",
    "prove.failover.command",
    "prove.scale.command",
    "prove.pull.command",
)


def main() -> int:
    commands: list[ProveCommand] = [each for name in _MODULES for each in _commands(name)]
    parser = argparse.ArgumentParser(prog="scripts/prove", description="Prove or refute what Lakelog promises.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in commands:
        command.arguments(subparsers.add_parser(command.name, help=command.about, description=command.about))
    arguments = parser.parse_args()
    (chosen,) = (command for command in commands if command.name == arguments.command)
    return chosen.run(arguments)


def _commands(module: str) -> tuple[ProveCommand, ...]:
    """Return the commands of a module: its `COMMAND`, or its `COMMANDS`."""
    found = import_module(module)
    return getattr(found, "COMMANDS", None) or (found.COMMAND,)


if __name__ == "__main__":
    sys.exit(main())
