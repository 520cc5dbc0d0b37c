"""Readable help texts: `--limit N` instead of `--limit <int range>`, `TOPIC` instead of `{topic}`, no `[x>=1]`.

The module changes how parameters are shown in all commands. The commands define the texts themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_TYPE = re.compile(r" <([^<>]+)>$")
_RANGE = re.compile(r"(-?[\d.]+<=?)?x([<>]=?-?[\d.]+)?")
_DEFAULT = re.compile(r"(default: )\((.*)\)")

Record = tuple[str, str]
"""The two columns of a parameter in the help."""


def tidy(command: Any) -> None:
    """Change how the help of a command and its subcommands shows parameters."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _tidy_argument(parameter)
        else:
            _tidy_option(parameter)
    for child in getattr(command, "commands", {}).values():
        tidy(child)


def _tidy_argument(argument: Any) -> None:
    argument.metavar = argument.metavar or argument.name.upper()
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    usage = name if argument.nargs == 1 else f"{name}..."
    argument.get_usage_pieces = lambda _: [usage]
    _replace_record(argument, lambda record: (argument.metavar, _text(record[1]).removesuffix("  [required]")))


def _tidy_option(option: Any) -> None:
    _replace_record(option, lambda record: (_option(option, record[0]), _text(record[1])))


def _replace_record(parameter: Any, change: Callable[[Record], Record]) -> None:
    original: Callable[[Any], Record | None] = parameter.get_help_record

    def get_help_record(context: Any) -> Record | None:
        record = original(context)
        return record and change(record)

    parameter.get_help_record = get_help_record


def _option(option: Any, shown: str) -> str:
    """Return the option's names and, instead of its type, a word for its value."""
    found = _TYPE.search(shown)
    if found is None:
        return shown
    kind = found[1]
    if "|" in kind:
        word = kind
    elif kind.startswith(("int", "float")):
        word = "N"
    else:
        word = max(option.opts, key=len).rpartition("-")[2].upper()
    return f"{shown[: found.start()]} {word}"


def _text(text: str) -> str:
    """Return the text without the number range or parentheses in the brackets at its end."""
    said, mark, extra = text.rpartition("  [")
    if not mark:
        return text
    kept = [_DEFAULT.sub(r"\1\2", part) for part in extra[:-1].split("; ") if not _RANGE.fullmatch(part)]
    return f"{said}  [{'; '.join(kept)}]" if kept else said
