"""The size of a scenario: about a tenth in CI, full by hand. It decides nothing else about a test."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

T = TypeVar("T")


class Size(Enum):
    CI = "ci"
    FULL = "full"

    def pick(self, *, ci: T, full: T) -> T:
        return ci if self is Size.CI else full
