"""The JSON of a reply that differs from the reply. Most replies are JSON as they are, and need none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec import Struct

Found = TypeVar("Found")
ShapeT = TypeVar("ShapeT", bound=Struct, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyForm(Generic[Found, ShapeT]):
    """The struct that JSON shows instead of a reply, such as one that has the bytes of a message.

    Attributes:
        shape: The struct of the JSON.
        write: A function that returns the struct of a reply.
        read: A function that returns the reply of a struct.
    """

    shape: type[ShapeT]
    write: Callable[[Found], ShapeT]
    read: Callable[[Any], Found]
