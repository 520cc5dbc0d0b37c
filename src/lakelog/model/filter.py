r"""Filters select messages in a small language that runs no code.

    headers.source = 'checkout' and value.total > 100 and key in ('a', 'b') and not error like '%timeout%'

The filter of a group, `--where` and redrive use the same grammar. A name that a message does not have is null.
Comparing null, or values of different types, is false and never an error. `value` is parsed as JSON, at most once per
message and only if the filter names it. A value that is not JSON has no fields, and `value like '%x%'` treats it as
text. `lakelog.model.like` matches patterns.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lakelog.model.filter_parser import parse_tree
from lakelog.model.filter_tree import And, Comparison, Constant, In, IsNull, Like, Name, Not, Operand, Or, Term
from lakelog.model.like import LikePattern, StepBudget

_UNREAD = object()
_READ_STEPS = 8
"""The number of steps for each byte of a value that is parsed as JSON."""


@dataclass(slots=True, kw_only=True)
class FilterInput:
    """The input of a filter: a message, and for a dead letter its history.

    Not frozen, because one is created per message and freezing triples the cost.
    """

    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    value: bytes | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    offset: int | None = None
    partition: int | None = None
    error: str | None = None
    deliveries: int | None = None
    failures: int | None = None
    steps: StepBudget | None = None
    """The limit for the work of one call of `Filter.matches`, which may raise `OutOfSteps`; None for no limit."""
    _document: object = field(default=_UNREAD, init=False, repr=False, compare=False)

    def document(self) -> object:
        """Return the value as JSON, else as text, else as bytes, which equal nothing."""
        if self._document is _UNREAD:
            self._document = _read(self.value)
            if self.steps is not None and self.value is not None:
                self.steps.left -= _READ_STEPS * len(self.value)
        return self._document


Test = Callable[[FilterInput], bool]
Getter = Callable[[FilterInput], object]


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. Filters with the same `str` are equal."""

    text: str
    matches: Test = field(repr=False, compare=False)
    """Returns whether the filter selects the message."""
    names: frozenset[Name] = field(repr=False, compare=False)
    """Names that the filter uses."""
    fields: frozenset[str] = field(repr=False, compare=False)
    """Fields of the input that the filter reads. The other fields may be empty."""
    weight: int = field(repr=False, compare=False)
    """The largest number of steps for each byte of a message."""

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[object, ...]:
        return (parse, (self.text,))


@lru_cache(maxsize=1024)
def parse(text: str) -> Filter:
    """Parse a filter. Raise `InvalidFilter` with the position of the error and what is accepted there."""
    tree = parse_tree(text)
    names = frozenset(_names(tree))
    fields = frozenset(name.field for name in names)
    weight = (_READ_STEPS if "value" in fields else 1) + _weight(tree)
    return Filter(text=str(tree), matches=_test(tree), names=names, fields=fields, weight=weight)


def _test(term: Term) -> Test:
    match term:
        case Comparison():
            return _comparison(term)
        case In():
            return _in(term)
        case Like():
            return _like(term)
        case IsNull():
            get = _getter(term.operand)
            return lambda subject: get(subject) is None
        case Not():
            test = _test(term.term)
            return lambda subject: not test(subject)
        case And() | Or():
            return _joined([_test(each) for each in term.terms], until=isinstance(term, Or))


def _joined(tests: list[Test], *, until: bool) -> Test:
    """Return a test that runs the tests in order until one returns `until`."""
    if len(tests) == 2:
        first, second = tests
        if until:
            return lambda subject: first(subject) or second(subject)
        return lambda subject: first(subject) and second(subject)

    def joined(subject: FilterInput) -> bool:
        for test in tests:
            if test(subject) is until:
                return until
        return not until

    return joined


# Python compares across types (True == 1, and "a" < 1 raises). Only values of one kind are compared here.
_KINDS: dict[type, str] = {str: "text", int: "number", float: "number", bool: "truth"}
_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


def _comparison(term: Comparison) -> Test:
    compare, left, right = _OPERATORS[term.operator], _getter(term.left), _getter(term.right)
    if isinstance(term.right, Constant) and isinstance(term.right.value, str):
        return _text_comparison(term, left, term.right.value)

    def test(subject: FilterInput) -> bool:
        one, other = left(subject), right(subject)
        kind = _KINDS.get(type(one))
        return kind is not None and kind is _KINDS.get(type(other)) and compare(one, other)

    return test


def _text_comparison(term: Comparison, get: Getter, text: str) -> Test:
    """Return a test for the usual case, in which the kind of the constant is known."""
    compare = _OPERATORS[term.operator]
    if term.operator != "=":
        return lambda subject: type(one := get(subject)) is str and compare(one, text)
    if isinstance(term.left, Name) and term.left.field == "headers":
        name = str(term.left.path[0])
        return lambda subject: subject.headers is not None and subject.headers.get(name) == text
    return lambda subject: get(subject) == text


def _in(term: In) -> Test:
    get = _getter(term.operand)
    choices = frozenset((_KINDS[type(one.value)], one.value) for one in term.choices if one.value is not None)

    def test(subject: FilterInput) -> bool:
        found = get(subject)
        kind = _KINDS.get(type(found))
        return kind is not None and (kind, found) in choices

    return test


def _like(term: Like) -> Test:
    get, pattern = _getter(term.operand), LikePattern(term.pattern)

    def test(subject: FilterInput) -> bool:
        text = get(subject)
        if type(text) is not str:
            return False
        return pattern.matches(text) if subject.steps is None else subject.steps.run(pattern, text)

    return test


def _getter(operand: Operand) -> Getter:
    if isinstance(operand, Constant):
        constant = operand.value
        return lambda subject: constant
    if operand.field == "headers":
        name = str(operand.path[0])
        return lambda subject: None if subject.headers is None else subject.headers.get(name)
    if operand.field == "value":
        return _value_getter(operand.path)
    if operand.field == "key":
        return lambda subject: _text(subject.key)
    return operator.attrgetter(operand.field)


def _value_getter(path: tuple[str | int, ...]) -> Getter:
    if not path:
        return FilterInput.document

    def get(subject: FilterInput) -> object:
        found = subject.document()
        for part in path:
            if isinstance(part, str):
                if type(found) is not dict:
                    return None
                found = found.get(part)
            elif type(found) is list and part < len(found):
                found = found[part]
            else:
                return None
        return found

    return get


def _read(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return json.loads(value.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _text(value)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _text(found: bytes | None) -> object:
    """Return bytes as text, or unchanged if they are not text. Bytes are not null but equal no text."""
    if found is None:
        return None
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found


def _names(term: Term) -> set[Name]:
    match term:
        case And() | Or():
            return set[Name]().union(*map(_names, term.terms))
        case Not():
            return _names(term.term)
        case Comparison():
            return {one for one in (term.left, term.right) if isinstance(one, Name)}
        case _:
            return {term.operand} if isinstance(term.operand, Name) else set()


def _weight(term: Term) -> int:
    """Return the steps of all patterns for each byte of a message."""
    match term:
        case And() | Or():
            return sum(map(_weight, term.terms))
        case Not():
            return _weight(term.term)
        case Like():
            return LikePattern(term.pattern).weight
        case _:
            return 0
