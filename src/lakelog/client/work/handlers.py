"""Handlers: what a person wrote, called the way its signature asks for.

A coroutine function runs in the worker's event loop, any other in a thread. It gets the value, or value and delivery.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client._sync.delivery import Delivery
from lakelog.client.work.held import Held
from lakelog.client.work.threads import HandlerThreads
from lakelog.errors import InvalidRequest


class Handler:
    """A function of a value, or of a value and a delivery."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidRequest(f"A handler is a function, not {type(function).__name__}.")
        self.function = function
        self.is_async = _is_async(function)
        self.wants_delivery = _wants_delivery(function)

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", None) or type(self.function).__name__

    def begin(self, value: object, held: Held, threads: HandlerThreads) -> asyncio.Future[Any]:
        """Starts it; the future ends when the function has really ended. An async one ends by being cancelled."""
        if self.wants_delivery:
            return begin(self.function, self.is_async, (value, delivery_of(held, self.is_async)), threads)
        return begin(self.function, self.is_async, (value,), threads)


def begin(
    function: Callable[..., Any], is_async: bool, args: tuple[object, ...], threads: HandlerThreads
) -> asyncio.Future[Any]:
    if is_async:
        task: asyncio.Future[Any] = asyncio.ensure_future(function(*args))
        return task
    return asyncio.wrap_future(threads.submit(lambda: function(*args)))


def begin_hook(
    hook: Callable[..., Any], held: Held, args: tuple[object, ...], threads: HandlerThreads
) -> asyncio.Future[Any]:
    """Hooks are called like handlers, but with the delivery first."""
    is_async = _is_async(hook)
    return begin(hook, is_async, (delivery_of(held, is_async), *args), threads)


def delivery_of(held: Held, is_async: bool) -> AsyncDelivery[Any] | Delivery[Any]:
    return AsyncDelivery(held) if is_async else Delivery(held)


def reason_of(error: BaseException) -> str:
    """The text that a failed message carries: the kind of error and its message."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_async(function: Callable[..., Any]) -> bool:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    # An object that is called like a function.
    called = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _wants_delivery(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    for wanted, count in ((True, 2), (False, 1)):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        parameters = list(signature.parameters.values())
        # An optional second argument is a setting of the function's own, unless it is called so.
        optional = wanted and len(parameters) > 1 and parameters[1].default is not inspect.Parameter.empty
        if not optional or parameters[1].name == "delivery":
            return wanted
    name = getattr(function, "__qualname__", function)
    raise InvalidRequest(f"A handler takes (value) or (value, delivery); {name} takes {signature}.")
