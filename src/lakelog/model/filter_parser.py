"""Parses the text of a filter into a tree, which `lakelog.model.filter` evaluates.

    filter     = conjunction ("or" conjunction)*
    conjunction = term ("and" term)*
    term       = "not" term | "(" filter ")" | comparison
    comparison = operand ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") operand
               | operand ["not"] "in" "(" literal ("," literal)* ")"
               | operand ["not"] "like" text
               | operand "is" ["not"] "null"
    operand    = literal | name
    name       = "key" | "headers" part | "value" part* | "error" | "deliveries" | …
    part       = "." word | "." quoted word | "[" text "]" | "[" index "]"

Length, depth and number of comparisons are bounded, and a filter never runs code.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NoReturn

from lakelog.errors import InvalidFilter
from lakelog.model.filter_tree import (
    WORD,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Operand,
    Or,
    Term,
)

MAX_LENGTH = 4096
MAX_DEPTH = 50
MAX_TERMS = 200

FIELDS = ("key", "error", "deliveries", "failures", "offset", "partition", "content_type", "correlation_id")
"""Names without parts. `headers` and `value` have parts."""
COMPARISONS = ("=", "!=", "<>", "<", "<=", ">", ">=")

_KEYWORDS = {"and", "or", "not", "in", "like", "is", "null", "true", "false"}
_CONSTANTS: dict[str, Literal] = {"null": None, "true": True, "false": False}
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<word>"""
    + WORD
    + r""")
    | (?P<sign><=|>=|<>|!=|[=<>().,\[\]])""",
    re.VERBOSE,
)
_NAMES = "key, headers.<name>, value, value.<path>, " + ", ".join(FIELDS[1:])
_OPERAND = f"a 'text', a number, true, false, null, or a name: {_NAMES}"


def parse_tree(text: str) -> Term:
    """Return the tree, or raise `InvalidFilter` with the position and what is accepted there."""
    if len(text) > MAX_LENGTH:
        raise InvalidFilter(f"A filter has at most {MAX_LENGTH} characters, not {len(text)}.", position=MAX_LENGTH + 1)
    tree = _Parser(text).whole()
    if len(str(tree)) > MAX_LENGTH:
        # The filter is stored in its full form, which must be accepted when it is parsed again.
        raise InvalidFilter(f"A filter has at most {MAX_LENGTH} characters when written out in full.", position=1)
    return tree


def parse_name(text: str) -> Name:
    """Return the name that the text consists of, or raise `InvalidFilter`."""
    if len(text) > MAX_LENGTH:
        raise InvalidFilter(f"A name has at most {MAX_LENGTH} characters, not {len(text)}.", position=MAX_LENGTH + 1)
    return _Parser(text).whole_name()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Parser:
    """Recursive descent over the tokens, with a count of depth and of comparisons."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._terms = 0

    def whole(self) -> Term:
        tree = self._any()
        if self._next.kind != "end":
            self._refuse("'and', 'or' or the end")
        return tree

    def whole_name(self) -> Name:
        operand = self._operand()
        if not isinstance(operand, Name) or self._next.kind != "end":
            self._refuse(f"one name: {_NAMES}")
        return operand

    def _any(self) -> Term:
        terms = [self._all()]
        while self._took("or"):
            terms.append(self._all())
        flat = [part for term in terms for part in (term.terms if isinstance(term, Or) else (term,))]
        return flat[0] if len(flat) == 1 else Or(tuple(flat))

    def _all(self) -> Term:
        terms = [self._term()]
        while self._took("and"):
            terms.append(self._term())
        flat = [part for term in terms for part in (term.terms if isinstance(term, And) else (term,))]
        return flat[0] if len(flat) == 1 else And(tuple(flat))

    def _term(self) -> Term:
        start = self._next
        if not (negated := self._took("not")) and not self._took("("):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refusal(start, f"brackets and 'not' are nested at most {MAX_DEPTH} deep")
        inner = self._term() if negated else self._any()
        if not negated:
            self._expect(")")
        self._depth -= 1
        return _negated(inner) if negated else inner

    def _comparison(self) -> Term:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise _refusal(self._next, f"a filter has at most {MAX_TERMS} comparisons")
        operand = self._operand()
        if self._next.text in COMPARISONS:
            operator = self._take().text
            return Comparison(operand, "!=" if operator == "<>" else operator, self._operand())
        if self._took("is"):
            negated = self._took("not")
            self._expect("null")
            return Not(IsNull(operand)) if negated else IsNull(operand)
        negated = self._took("not")
        term = self._choice(operand)
        return Not(term) if negated else term

    def _choice(self, operand: Operand) -> In | Like:
        if self._took("like"):
            if self._next.kind != "text":
                self._refuse("a 'text' in which % matches any characters and _ matches one")
            return Like(operand, _unquote(self._take().text))
        if not self._took("in"):
            self._refuse(f"{', '.join(COMPARISONS)}, in, like, is null or is not null")
        self._expect("(")
        choices = [self._constant()]
        while self._took(","):
            choices.append(self._constant())
        self._expect(")")
        # Compared by text, because Python treats 1 and True as equal.
        return In(operand, tuple({str(choice): choice for choice in choices}.values()))

    def _operand(self) -> Operand:
        token = self._next
        if token.kind != "word" or token.text.lower() in _KEYWORDS:
            return self._constant()
        if token.text in FIELDS:
            return Name(self._take().text)
        if token.text not in ("headers", "value"):
            self._refuse(_OPERAND)
        self._take()
        return Name("value", self._path()) if token.text == "value" else Name("headers", (self._header(),))

    def _header(self) -> str:
        start, path = self._next, self._path()
        # Headers have no inner parts, so dots can only belong to the name.
        if not path or not all(isinstance(part, str) for part in path):
            raise _refusal(start, "after headers the name of one is accepted: headers.source or headers['x-y']")
        return ".".join(map(str, path))

    def _path(self) -> tuple[str | int, ...]:
        path: list[str | int] = []
        while True:
            if self._took("."):
                if self._next.kind not in ("word", "quoted"):
                    self._refuse("a name, or in brackets any text: ['2 words']")
                token = self._take()
                path.append(token.text if token.kind == "word" else _unquote(token.text))
            elif self._took("["):
                path.append(self._index())
                self._expect("]")
            else:
                return tuple(path)

    def _index(self) -> str | int:
        token = self._next
        if token.kind == "text":
            return _unquote(self._take().text)
        if token.kind != "number" or not token.text.isdigit():
            self._refuse("a 'name' or an index from 0 on")
        return int(self._take().text)

    def _constant(self) -> Constant:
        token = self._next
        if token.kind == "text":
            return Constant(_unquote(self._take().text))
        if token.kind == "number":
            return Constant(_number(self._take()))
        if token.kind == "word" and token.text.lower() in _CONSTANTS:
            return Constant(_CONSTANTS[self._take().text.lower()])
        self._refuse(_OPERAND)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _took(self, text: str) -> bool:
        """Consume the next token if it is this sign or keyword, and return whether it was."""
        token = self._next
        is_it = token.kind in ("word", "sign") and token.text.lower() == text
        self._at += is_it
        return is_it

    def _expect(self, text: str) -> None:
        if not self._took(text):
            self._refuse(f"'{text}'")

    def _refuse(self, accepted: str) -> NoReturn:
        raise _refusal(self._next, f"accepted there: {accepted}")


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refusal(_Token("unknown", text[at], at), f"a text ends with its quote; else accepted: {_OPERAND}")
        if match.lastgroup != "blank":
            tokens.append(_Token(match.lastgroup or "", match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "the end", at)]


def _refusal(token: _Token, rule: str) -> InvalidFilter:
    found = token.text if token.kind == "end" else repr(token.text[:40])
    return InvalidFilter(
        f"The filter cannot be read at character {token.start + 1} ({found}): {rule}.", position=token.start + 1
    )


def _negated(term: Term) -> Term:
    return term.term if isinstance(term, Not) else Not(term)


def _number(token: _Token) -> int | float:
    if token.text.removeprefix("-").isdigit():
        return int(token.text)
    number = float(token.text)
    if not math.isfinite(number):
        raise _refusal(token, "numbers are below 1.8e308")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _unquote(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)
