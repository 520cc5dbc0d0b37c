"""All invariants by number. A module has one as `INVARIANT`, or its parts, of several scopes, as `INVARIANTS`."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from prove.checker import (
    l1,
    l2,
    l3,
    l4,
    l5,
    l6,
    l7,
    l8,
    l9,
    s01,
    s02,
    s03,
    s04,
    s05,
    s06,
    s07,
    s08,
    s09,
    s10,
    s11,
    s12,
    s13,
    s14,
    s15,
    s16,
    s17,
    s18,
    s19,
    s20,
    s21,
    s22,
    s23,
    s24,
)
from prove.checker.basis import Invariant

_MODULES = (
    s01, s02, s03, s04, s05, s06, s07, s08, s09, s10, s11, s12,
    s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24,
    l1, l2, l3, l4, l5, l6, l7, l8, l9,
)  # fmt: skip


def _parts(module: ModuleType) -> Iterator[Invariant]:
    yield from getattr(module, "INVARIANTS", None) or (module.INVARIANT,)


INVARIANTS: tuple[Invariant, ...] = tuple(part for module in _MODULES for part in _parts(module))
NAMES: tuple[str, ...] = tuple(dict.fromkeys(each.name for each in INVARIANTS))
