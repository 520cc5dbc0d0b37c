"""Checks that the functions that callers pass can be called with the intended arguments.

The kind of a function decides where it runs: see `lakelog.client.worker.handlers`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from lakelog.errors import InvalidRequest


def is_of_kind(function: Callable[..., Any], *kinds: Callable[[object], bool]) -> bool:
    """Return whether the function, or the `__call__` of a callable object, is of one of the kinds."""
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(function, "__call__", None)  # noqa: B004
    return any(kind(function) or kind(called) for kind in kinds)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    return is_of_kind(function, inspect.iscoroutinefunction)


def check_hook(name: str, function: object, arguments: Sequence[str]) -> None:
    """Raise if the function cannot be called with these arguments, or if calling it would run nothing."""
    call = f"({', '.join(arguments)})"
    if not callable(function):
        raise InvalidRequest(f"`{name}` must be a function of {call}, not {function!r}.")
    if is_of_kind(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise InvalidRequest(f"`{name}` contains `yield`: calling it runs nothing. Write a function without `yield`.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as exc:
        raise InvalidRequest(
            f"`{name}` is called with {call}, and {name_of(function)} takes {signature}. Write a function of {call}."
        ) from exc


def check_function(name: str, function: object, arguments: Sequence[str]) -> None:
    """Check a function whose result is used directly, so that it must not be a coroutine function."""
    check_hook(name, function, arguments)
    if callable(function) and is_coroutine_function(function):
        raise InvalidRequest(f"`{name}` must be a plain function, and {name_of(function)} is `async def`.")


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
