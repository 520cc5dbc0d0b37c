"""The types of handlers, hooks and filters that callers pass to `subscribe`.

A plain function gets a `Delivery`, a coroutine function an `AsyncDelivery`. The module `handlers` calls them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client._sync.delivery import Delivery

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")

Ignored = bool | int | float | str | bytes | list[Any] | tuple[Any, ...] | dict[Any, Any] | set[Any] | None
"""The return types of a plain function with a delivery. `object` would accept coroutine functions too."""
Async = TypeVar("Async", bound=Awaitable[object])
Plain = TypeVar("Plain", bound=Ignored)

HandlerFunction = (
    Callable[[T], object] | Callable[[T, AsyncDelivery[T]], Awaitable[object]] | Callable[[T, Delivery[T]], Ignored]
)
OnAck = Callable[[AsyncDelivery[T]], Awaitable[object]] | Callable[[Delivery[T]], Ignored]
OnDead = Callable[[AsyncDelivery[T], Exception], Awaitable[object]] | Callable[[Delivery[T], Exception], Ignored]
Filter = str | Callable[[T], bool]


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
