"""The tree of a filter, which `lakelog.model.filter_parser` creates and `lakelog.model.filter` compiles.

Every tree has one printed form, so that filters that differ only in spaces, brackets or `<>` are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WORD = r"[^\W\d][\w-]*"
"""A name that needs no quotes. There is no arithmetic, so a hyphen is always part of a name."""

Literal = str | int | float | bool | None

_IS_WORD = re.compile(WORD)


@dataclass(frozen=True, slots=True)
class Constant:
    value: Literal

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return _quote(self.value)
        return "null" if self.value is None else str(self.value).lower()


@dataclass(frozen=True, slots=True)
class Name:
    """A name. `path` has the parts after `headers` (one text) or `value` (object fields and array indexes)."""

    field: str
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return self.field + "".join(map(_part, self.path))


Operand = Constant | Name


@dataclass(frozen=True, slots=True)
class Comparison:
    left: Operand
    operator: str
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class In:
    operand: Operand
    choices: tuple[Constant, ...]

    def text(self, negation: str = "") -> str:
        return f"{self.operand} {negation}in ({', '.join(map(str, self.choices))})"

    __str__ = text


@dataclass(frozen=True, slots=True)
class Like:
    operand: Operand
    pattern: str

    def text(self, negation: str = "") -> str:
        return f"{self.operand} {negation}like {_quote(self.pattern)}"

    __str__ = text


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Operand

    def text(self, negation: str = "") -> str:
        return f"{self.operand} is {negation}null"

    __str__ = text


@dataclass(frozen=True, slots=True)
class Not:
    term: Term

    def __str__(self) -> str:
        if isinstance(self.term, In | Like | IsNull):
            return self.term.text("not ")
        return f"not ({self.term})" if isinstance(self.term, And | Or) else f"not {self.term}"


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return " and ".join(f"({term})" if isinstance(term, Or) else str(term) for term in self.terms)


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.terms))


Term = Comparison | In | Like | IsNull | Not | And | Or


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _IS_WORD.fullmatch(part) else f"[{_quote(part)}]"
