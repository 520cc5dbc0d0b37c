"""The messages of a run. Each says what its worker does with it, and can be generated again from its number.

A producer that replaces a killed one generates the same bytes, so that the server recognises the repeat.
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
        """Return the JSON body. A value that is not text is sent as Base64."""
        try:
            return {"key": self.key, "value": self.value.decode()}
        except UnicodeDecodeError:
            return {"key": self.key, "value_base64": base64.b64encode(self.value).decode()}


def make(plan: ProducerPlan, maker: str, number: int, partition: int | None = None) -> LoadMessage:
    """Return the message with that number of that producer, for a partition if one is given."""
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
    """Return an unusual value: empty, of maximum length, or not text."""
    return dice.choice((b"", value.ljust(MAX_MESSAGE_BYTES, b"."), value + b"\xff\xfe"))


def does(value: bytes) -> str:
    """Return the worker's action: `good`, `bad`, `kill` or `discard`."""
    return value.split(b" ", 2)[1].decode() if value else "good"
