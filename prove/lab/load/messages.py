"""The messages of a run. Each says what a worker shall do with it, and can be made again from its number alone.

A producer that takes over from a killed one makes the same bytes, so that its repeat is a repeat.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from prove.lab.load.plan import ProducerPlan


@dataclass(frozen=True, kw_only=True)
class Made:
    """One message before it is published."""

    key: str | None
    value: str
    unique: str


def make(plan: ProducerPlan, maker: str, number: int, partition: int | None = None) -> Made:
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
    return Made(key=None if dice.random() < 0.05 else key, value=value, unique=f"{maker}-{number}")


def does(value: str) -> str:
    """What the worker shall do: `good`, `bad`, `kill` or `discard`."""
    return value.split(" ", 2)[1]
