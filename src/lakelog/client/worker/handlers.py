"""The types of handlers, hooks and filters, and how a worker calls a handler by its signature.

A coroutine function runs in the worker's event loop, any other function in a thread. It gets the value, or the value
and the delivery. An awaitable that a function returns is awaited in the event loop, and the message is done after that.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client._async.message_batch import AsyncBatch
from lakelog.client._sync.delivery import Delivery
from lakelog.client._sync.message_batch import Batch
from lakelog.client.consumer.running import AsyncHandlerLoop, HandlerLoop
from lakelog.client.functions import check_hook, is_coroutine_function, is_of_kind, name_of
from lakelog.client.message_answers import BatchAnswers, HeldList
from lakelog.client.worker.leased_message import LeasedMessage
from lakelog.client.worker.threads import HandlerThreads
from lakelog.errors import InvalidRequest

if TYPE_CHECKING:
    from lakelog.client.consumer.core import HeldMessage


class Handler:
    """A function that takes a value, or a value and a delivery."""

    takes = "(value) or (value, delivery)"

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidRequest(f"A handler must be a function of {self.takes}, not {function!r}.")
        self.function = function
        if is_of_kind(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            raise InvalidRequest(
                f"Handler {self.name} contains `yield`: calling it makes a generator and runs nothing. "
                "Write a function without `yield`."
            )
        self.is_async = is_coroutine_function(function)
        # A wrapper of a coroutine function may be a plain function that passes the delivery on.
        self.async_delivery = self.is_async or is_coroutine_function(inspect.unwrap(function))
        self.wants_delivery = self._check_signature()

    @property
    def name(self) -> str:
        return name_of(self.function)

    def begin(self, value: object, leased: LeasedMessage, threads: HandlerThreads) -> asyncio.Future[Any]:
        """Start the handler. The future ends when the function has ended. Cancelling it ends a coroutine function."""
        return begin(self.function, self.is_async, self.arguments(value, leased), threads)

    def arguments(self, value: object, held: HeldMessage) -> tuple[object, ...]:
        """Return the arguments of the function for a message."""
        return (value, delivery_of(held, self.async_delivery)) if self.wants_delivery else (value,)

    def _check_signature(self) -> bool:
        """Return whether the function takes a delivery. Raise if it cannot be called."""
        return _wants_delivery(self.function)


class BatchHandler(Handler):
    """A function that takes a batch."""

    takes = "(batch)"

    def begin_batch(self, work: BatchToHandle, threads: HandlerThreads) -> asyncio.Future[Any]:
        """Start the handler for a batch, like `begin`."""
        loop = asyncio.get_running_loop()
        batch: AsyncBatch[Any] | Batch[Any]
        if self.async_delivery:
            batch = AsyncBatch(work, HeldList(work.given), AsyncHandlerLoop(loop), work.failed)
        else:
            batch = Batch(work, HeldList(work.given), HandlerLoop(loop), work.failed)
        return begin(self.function, self.is_async, (batch,), threads)

    def _check_signature(self) -> bool:
        check_hook("handler", self.function, ("batch",))
        return False


class BatchToHandle(BatchAnswers, Protocol):
    """The messages of a batch, and the answers to them."""

    given: list[Any]
    failed: dict[Any, str]


def begin(
    function: Callable[..., Any], is_async: bool, args: tuple[object, ...], threads: HandlerThreads
) -> asyncio.Future[Any]:
    """Start the function. The future ends when the function, and an awaitable that it returned, has ended."""
    loop = asyncio.get_running_loop()
    if is_async:
        return loop.create_task(run_async(function, args))
    # The function runs in the context of the caller, such as its current span.
    return threads.begin(partial(copy_context().run, run_plain, function, args, loop))


def run_plain(function: Callable[..., Any], args: tuple[object, ...], loop: asyncio.AbstractEventLoop) -> None:
    """Call a plain function in a thread. An awaitable that it returns is awaited in the event loop."""
    result = function(*args)
    if result is not None and is_awaitable(result):
        asyncio.run_coroutine_threadsafe(run_awaitable(result), loop).result()


async def run_async(function: Callable[..., Any], args: tuple[object, ...]) -> None:
    """Call a coroutine function, and await an awaitable that it returns."""
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
    hook: Callable[..., Any], held: HeldMessage, args: tuple[object, ...], threads: HandlerThreads
) -> asyncio.Future[Any]:
    """Call a hook like a handler, with the delivery as its first argument."""
    is_async = is_coroutine_function(hook)
    async_delivery = is_async or is_coroutine_function(inspect.unwrap(hook))
    return begin(hook, is_async, (delivery_of(held, async_delivery), *args), threads)


def delivery_of(held: HeldMessage, is_async: bool) -> AsyncDelivery[Any] | Delivery[Any]:
    return AsyncDelivery(held) if is_async else Delivery(held)


def reason_of(error: BaseException) -> str:
    """Return the reason that a failed message carries: the type of the error and its text."""
    try:
        text = str(error)
    except Exception:
        # `str` of the user's own error class failed. The message has failed all the same.
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
        # An optional second parameter belongs to the function, unless it is named so.
        optional = wanted and len(parameters) > 1 and parameters[1].default is not inspect.Parameter.empty
        if not optional or parameters[1].name == "delivery":
            return wanted
    raise InvalidRequest(f"A handler takes (value) or (value, delivery); {name_of(function)} takes {signature}.")


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")

Ignored = bool | int | float | str | bytes | list[Any] | tuple[Any, ...] | dict[Any, Any] | set[Any] | None
"""The return types of a plain function with a delivery. `object` would accept coroutine functions too."""
Async = TypeVar("Async", bound=Awaitable[object])
Plain = TypeVar("Plain", bound=Ignored)

HandlerFunction = (
    Callable[[T], object]
    | Callable[[T, AsyncDelivery[T]], Awaitable[object]]
    | Callable[[T, Delivery[T]], Ignored]
    | Callable[[AsyncBatch[T]], Awaitable[object]]
    | Callable[[Batch[T]], Ignored]
)
OnAck = Callable[[AsyncDelivery[T]], Awaitable[object]] | Callable[[Delivery[T]], Ignored]
OnDead = Callable[[AsyncDelivery[T], Exception], Awaitable[object]] | Callable[[Delivery[T], Exception], Ignored]
Filter = str | Callable[[T], bool]
Once = str | Callable[[T], object]


# A function matches one of these protocols if it matches both overloads. The first says how it is called, the second
# takes down its parameters, so that a decorator can return a function with the same ones.


class ValueHandler(Protocol[T_contra, P, R_co]):
    """A function of a value."""

    @overload
    def __call__(self, value: T_contra, /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class AsyncDeliveryHandler(Protocol[T_contra, P, R_co]):
    """A coroutine function of a value and a delivery."""

    @overload
    def __call__(self, value: T_contra, delivery: AsyncDelivery[T_contra], /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class DeliveryHandler(Protocol[T_contra, P, R_co]):
    """A plain function of a value and a delivery."""

    @overload
    def __call__(self, value: T_contra, delivery: Delivery[T_contra], /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
