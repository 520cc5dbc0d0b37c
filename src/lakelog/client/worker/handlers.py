"""Handlers: what a person wrote, called the way its signature asks for.

A coroutine function runs in the worker's event loop, any other in a thread. It gets the value, or value and delivery.
An awaitable that a function returns is awaited in the event loop: the message is done when that is done.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client._sync.delivery import Delivery
from lakelog.client.functions import is_coroutine_function, is_of_kind, name_of
from lakelog.client.worker.leased_message import LeasedMessage
from lakelog.client.worker.threads import HandlerThreads
from lakelog.errors import InvalidRequest


class Handler:
    """A function of a value, or of a value and a delivery."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidRequest(f"A handler must be a function of (value) or (value, delivery), not {function!r}.")
        self.function = function
        if is_of_kind(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            raise InvalidRequest(
                f"Handler {self.name} contains `yield`: calling it makes a generator and runs nothing. "
                "Write a function without `yield`."
            )
        self.is_async = is_coroutine_function(function)
        # A wrapper of a coroutine function may be a plain one, and passes the delivery on.
        self.async_delivery = self.is_async or is_coroutine_function(inspect.unwrap(function))
        self.wants_delivery = _wants_delivery(function)

    @property
    def name(self) -> str:
        return name_of(self.function)

    def begin(self, value: object, leased: LeasedMessage, threads: HandlerThreads) -> asyncio.Future[Any]:
        """Starts it; the future ends when the function has really ended. An async one ends by being cancelled."""
        if self.wants_delivery:
            return begin(self.function, self.is_async, (value, delivery_of(leased, self.async_delivery)), threads)
        return begin(self.function, self.is_async, (value,), threads)


def begin(
    function: Callable[..., Any], is_async: bool, args: tuple[object, ...], threads: HandlerThreads
) -> asyncio.Future[Any]:
    """Start it; the future ends when the function, and an awaitable that it returned, has ended."""
    loop = asyncio.get_running_loop()
    if is_async:
        return loop.create_task(_run_async(function, args))

    def run() -> None:
        result = function(*args)
        if result is not None and is_awaitable(result):
            asyncio.run_coroutine_threadsafe(run_awaitable(result), loop).result()

    return threads.begin(run)


async def _run_async(function: Callable[..., Any], args: tuple[object, ...]) -> None:
    result = await function(*args)
    if result is not None and is_awaitable(result):
        await run_awaitable(result)


def is_awaitable(result: object) -> bool:
    """Return whether a handler's result has to be awaited. Refuse a generator, which has run nothing."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise InvalidRequest("The handler returned a generator, so nothing has run. Write a function without `yield`.")
    return inspect.isawaitable(result)


async def run_awaitable(awaitable: Awaitable[object]) -> None:
    await awaitable


def begin_hook(
    hook: Callable[..., Any], leased: LeasedMessage, args: tuple[object, ...], threads: HandlerThreads
) -> asyncio.Future[Any]:
    """Hooks are called like handlers, but with the delivery first."""
    is_async = is_coroutine_function(hook)
    async_delivery = is_async or is_coroutine_function(inspect.unwrap(hook))
    return begin(hook, is_async, (delivery_of(leased, async_delivery), *args), threads)


def delivery_of(leased: LeasedMessage, is_async: bool) -> AsyncDelivery[Any] | Delivery[Any]:
    return AsyncDelivery(leased) if is_async else Delivery(leased)


def reason_of(error: BaseException) -> str:
    """The text that a failed message carries: the kind of error and its message."""
    try:
        text = str(error)
    except Exception:
        # An error of the user's own class; the message has failed all the same.
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


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
    raise InvalidRequest(f"A handler takes (value) or (value, delivery); {name_of(function)} takes {signature}.")
