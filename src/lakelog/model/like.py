r"""Patterns of `like`, matched in slices of bounded work.

% matches any characters and _ matches one; `\%`, `\_` and `\\` match themselves. Each piece between two % is matched at
its first occurrence, without backtracking. A piece without _ is found by `str.find`, in time linear in the text. A
short piece with _ is found by a regular expression, and a long one with one bit for each of its characters. Both take
many steps for each character of the text, so a caller can divide them into slices.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import cached_property

SLICE_STEPS = 1 << 19
"""The largest number of steps in one slice of a search for a piece with _. A step takes about a nanosecond."""
LONG_PIECE = 64
"""Above this length, a piece with _ is searched with bits instead of a regular expression."""
_COMPARE_STEPS = 8
"""The number of steps to compare one character with one character of a short piece that has _."""
_BITS_STEPS = 512
"""The number of steps to compare one character with all of a long piece."""

_SIGNS = re.compile(r"\\[\\%_]|.", re.DOTALL)


class OutOfSteps(Exception):
    """The error of a search that has used up its steps. If it is run again, it continues where it stopped."""


class _Piece:
    """A part of a pattern without %. `literal` is its text if it has no _."""

    def __init__(self, signs: list[str]) -> None:
        self._signs = signs
        self.length = len(signs)
        is_plain = "_" not in signs
        self.literal = "".join(sign[-1] for sign in signs) if is_plain else None
        regex = re.compile("".join("." if sign == "_" else re.escape(sign[-1]) for sign in signs), re.DOTALL)
        self._match, self._search = regex.match, regex.search
        self._anchor, self._anchor_at = _longest_run(signs)

    @property
    def weight(self) -> int:
        """The largest number of steps for each character of a text."""
        if self.literal is not None:
            return 1
        return _BITS_STEPS if self.length > LONG_PIECE else _COMPARE_STEPS * self.length

    def is_at(self, text: str, start: int) -> bool:
        """Return whether the piece is at this position of the text."""
        if self.literal is not None:
            return text.startswith(self.literal, start)
        return self._match(text, start) is not None

    def find(self, text: str, start: int, end: int) -> Generator[int, None, int]:
        """Yield the number of steps after each slice. Return the end of the first occurrence, or -1."""
        if self.literal is not None:
            found = text.find(self.literal, start, end)
            yield (end if found < 0 else found) - start + self.length
            return -1 if found < 0 else found + self.length
        if self.length > LONG_PIECE:
            return (yield from self._find_by_bits(text, start, end))
        stride = max(1, SLICE_STEPS // (_COMPARE_STEPS * self.length))
        while start + self.length <= end:
            # The longest text without _ rules out most positions quickly.
            anchor = text.find(self._anchor, start + self._anchor_at, end)
            if anchor < 0:
                yield end - start
                return -1
            steps, start = anchor - self._anchor_at - start, anchor - self._anchor_at
            match = self._search(text, start, min(end, start + stride + self.length - 1))
            yield steps + _COMPARE_STEPS * stride * self.length
            if match is not None:
                return match.end()
            start += stride
        return -1

    def _find_by_bits(self, text: str, start: int, end: int) -> Generator[int, None, int]:
        """Find a long piece: bit n of `state` says that its first n + 1 characters end here."""
        get, wild, last = self._bits.get, self._wild, 1 << (self.length - 1)
        state, stride = 0, SLICE_STEPS // _BITS_STEPS
        for first in range(start, end, stride):
            for at, sign in enumerate(text[first : min(end, first + stride)], first + 1):
                state = (state << 1 | 1) & get(sign, wild)
                if state >= last:
                    return at
            yield SLICE_STEPS
        return -1

    @cached_property
    def _wild(self) -> int:
        return sum(1 << number for number, sign in enumerate(self._signs) if sign == "_")

    @cached_property
    def _bits(self) -> dict[str, int]:
        """Return the positions of each character in the piece as bits.

        The positions of _ are set for every character.
        """
        bits: dict[str, int] = {}
        for number, sign in enumerate(self._signs):
            if sign != "_":
                bits[sign[-1]] = bits.get(sign[-1], self._wild) | 1 << number
        return bits


class LikePattern:
    """A pattern of `like`. It is equal only to itself, because searches are kept by their pattern."""

    __slots__ = ("_first", "_last", "_middle", "_text", "weight")

    def __init__(self, pattern: str) -> None:
        parts: list[list[str]] = [[]]
        for sign in _SIGNS.findall(pattern):
            if sign == "%":
                parts.append([])
            else:
                parts[-1].append(sign)
        first, *rest = map(_Piece, parts)
        self._first = first
        self._last = rest[-1] if rest else None
        self._middle = [piece for piece in rest[:-1] if piece.length]
        is_contained = len(parts) == 3 and not first.length and not rest[-1].length
        self._text = rest[0].literal if is_contained else None
        """The text of the frequent pattern '%text%'."""
        self.weight = 1 + sum(piece.weight for piece in self._middle)
        """The largest number of steps for each character of a text."""

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches the pattern, without a limit of steps."""
        if self._text is not None:
            return self._text in text
        search = self.search(text)
        while True:
            try:
                next(search)
            except StopIteration as done:
                return bool(done.value)

    def search(self, text: str) -> Generator[int, None, bool]:
        """Yield the number of steps after each slice. Return whether the whole text matches the pattern."""
        if self._last is None:
            return len(text) == self._first.length and self._first.is_at(text, 0)
        at, end = self._first.length, len(text) - self._last.length
        if at > end or not self._first.is_at(text, 0) or not self._last.is_at(text, end):
            return False
        for piece in self._middle:
            at = yield from piece.find(text, at, end)
            if at < 0:
                return False
        return True


class StepBudget:
    """The steps that the evaluation of a filter for one message may take before it stops, and its results so far.

    A filter that raised `OutOfSteps` is evaluated again from the start with new steps. Its finished searches return
    their results, and the unfinished search continues.
    """

    __slots__ = ("_found", "_searches", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self._searches: dict[LikePattern, Generator[int, None, bool]] = {}
        self._found: dict[LikePattern, bool] = {}

    def run(self, pattern: LikePattern, text: str) -> bool:
        """Return whether the text matches, or raise `OutOfSteps`."""
        found = self._found.get(pattern)
        if found is not None:
            return found
        search = self._searches.get(pattern)
        if search is None:
            search = self._searches[pattern] = pattern.search(text)
        while self.left > 0:
            try:
                self.left -= next(search)
            except StopIteration as done:
                self._found[pattern] = bool(done.value)
                return self._found[pattern]
        raise OutOfSteps


def _longest_run(signs: list[str]) -> tuple[str, int]:
    """Return the longest text without _ in the piece, and its position."""
    best, best_at, run = "", 0, ""
    for number, sign in enumerate([*signs, "_"]):
        if sign != "_":
            run += sign[-1]
            continue
        if len(run) > len(best):
            best, best_at = run, number - len(run)
        run = ""
    return best, best_at
