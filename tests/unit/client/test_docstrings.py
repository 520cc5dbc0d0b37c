"""The docstrings of the public API: each method has one, and it describes each parameter and each attribute."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import lakelog
from lakelog import errors
from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.client._async.group import AsyncGroup
from lakelog.client._sync.dead_letters import DeadLetters
from lakelog.client._sync.group import Group

PUBLIC = [getattr(lakelog, name) for name in lakelog.__all__ if name != "errors"]
RETURNED = [Group, AsyncGroup, DeadLetters, AsyncDeadLetters]
CLASSES = [each for each in [*PUBLIC, *RETURNED] if inspect.isclass(each)]
MADE_BY_LAKELOG = [
    each for each in CLASSES if each.__module__.startswith(("lakelog.client._", "lakelog.client.reading.messages"))
]
"""Callers do not call their constructors."""
_NAMED = re.compile(r"^ +(\w+): \S", re.MULTILINE)
_PARTS_OF_OTHERS = {"with_traceback", "add_note", "reset_after_fork", "finish_at_exit", "finish"}
"""Attributes of Python's exceptions, and methods that a client calls on its own producers."""


def methods() -> Iterator[tuple[str, Any]]:
    for function in (lakelog.connect, lakelog.connect_async):
        yield function.__name__, function
    for owner in CLASSES:
        for name, member in inspect.getmembers(owner):
            if name.startswith("_") or name in _PARTS_OF_OTHERS or _is_inherited_from_python(owner, name):
                continue
            if inspect.isfunction(member) or inspect.ismethod(member) or isinstance(member, property):
                yield f"{owner.__name__}.{name}", member


def _is_inherited_from_python(owner: type, name: str) -> bool:
    home = next(base for base in owner.__mro__ if name in vars(base))
    return not home.__module__.startswith("lakelog")


def documented(thing: Any) -> set[str]:
    """The names that the sections Args and Attributes describe."""
    return set(_NAMED.findall(inspect.getdoc(thing) or ""))


def parameters(function: Any) -> list[str]:
    if isinstance(function, property):
        return []
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def test_there_are_many() -> None:
    assert len([*methods()]) > 150


@pytest.mark.parametrize(("name", "function"), [*methods()], ids=lambda each: each if isinstance(each, str) else "")
def test_a_public_method_describes_each_parameter(name: str, function: Any) -> None:
    text = inspect.getdoc(function)
    assert text, f"{name} has no docstring"
    first = text.splitlines()[0]
    assert first.endswith((".", ":")) and first[0].isupper(), first
    missing = [each for each in parameters(function) if each not in documented(function)]
    assert missing == [], f"{name} does not describe {missing}"


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_a_public_class_describes_its_fields(owner: type) -> None:
    assert inspect.getdoc(owner), f"{owner.__name__} has no docstring"
    names: list[str] = []
    if dataclasses.is_dataclass(owner):
        names = [field.name for field in dataclasses.fields(owner)]
    elif issubclass(owner, msgspec.Struct):
        names = list(owner.__struct_fields__)
    elif hasattr(owner, "_fields"):
        names = list(owner._fields)
    elif owner not in MADE_BY_LAKELOG and "__init__" in vars(owner):
        names = parameters(owner.__init__)
    missing = [name for name in names if not name.startswith("_") and name not in documented(owner)]
    assert missing == [], f"{owner.__name__} does not describe {missing}"


@pytest.mark.parametrize("kind", errors.all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_says_what_is_wrong(kind: type[errors.LakelogError]) -> None:
    assert "__doc__" in vars(kind) and vars(kind)["__doc__"].splitlines()[0].endswith(".")
