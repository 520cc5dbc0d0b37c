"""The messages of a run. Each says what a worker shall do with it, and can be made again from its number alone.

A producer that takes over from a killed one makes the same bytes, so that its repeat is a repeat.
"""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, replace
from typing import Any

from lakelog.model.limits import MAX_MESSAGE_BYTES
from prove.lab.load.plan import ProducerPlan


@dataclass(frozen=True, kw_only=True)
class LoadMessage:
    """One message before it is published."""

    key: str | None
    value: bytes
    unique: str

    @property
    def body(self) -> dict[str, Any]:
        """As JSON says it: what is no text goes as Base64."""
        try:
            return {"key": self.key, "value": self.value.decode()}
        except UnicodeDecodeError:
            return {"key": self.key, "value_base64": base64.b64encode(self.value).decode()}


def make(plan: ProducerPlan, maker: str, number: int, partition: int | None = None) -> LoadMessage:
    """The message of that number by that maker, for a partition if it has to be there."""
    dice = random.Random(f"{maker}/{number}")
    drawn = dice.random()
    does = "bad" if drawn < plan.bad else "kill" if drawn < plan.bad + plan.kill else "good"
    if does == "good" and dice.random() < plan.discard:
        does = "discard"
    key = f"k{dice.randrange(plan.keys)}"
    if partition is not None:
        key = f"{partition}.{key}"
    value = f"{maker}-{number} {does} {'.' * dice.choice((0, 20, 60, 200))}"
    made = LoadMessage(key=None if dice.random() < 0.05 else key, value=value.encode(), unique=f"{maker}-{number}")
    if does == "good" and dice.random() < plan.odd:
        return replace(made, value=odd(made.value, dice))
    return made


def odd(value: bytes, dice: random.Random) -> bytes:
    """Nothing at all, as much as is allowed, or what is no text."""
    return dice.choice((b"", value.ljust(MAX_MESSAGE_BYTES, b"."), value + b"\xff\xfe"))


def does(value: bytes) -> str:
    """What the worker shall do: `good`, `bad`, `kill` or `discard`."""
    return value.split(b" ", 2)[1].decode() if value else "good"
