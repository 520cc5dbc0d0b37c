"""The masks of a topic: the fields of its messages in whose place people see `•••`.

The console and `lakelog mcp` mask what they show. Programs get messages unchanged, so masks replace no right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec import Raw

from lakelog.errors import InvalidFilter, InvalidRequest
from lakelog.model.arguments import check_text
from lakelog.model.filter_parser import parse_name
from lakelog.model.filter_tree import Name

MASK = "•••"
MASKED = MASK.encode()
"""The bytes that are shown instead of a key or a whole value."""
MAX_MASKS = 100
WHOLE = ("key", "headers", "correlation_id", "idempotency_key", "error")
"""Fields that are masked as a whole. Single headers, the value, and fields of the value can be masked as well."""

_MAX_WORK, _OPENING = 4 << 20, 2000
"""The work after which a value is masked as a whole, and the work of each object and list on the way to a mask: that
many bytes. Each level of a value is read again.
"""
_JSON_MASK = Raw(msgspec.json.encode(MASK))
# The fields that stay are copied byte by byte, because decoding would change numbers.
_OPENED = msgspec.json.Decoder(dict[str, Raw] | list[Raw] | str | float | bool | None)

Path = tuple[str, ...]


def check_masks(masks: Iterable[str]) -> tuple[str, ...]:
    """Return the masks in their normal form, each of them once. Raise `InvalidRequest` if one is not valid."""
    if isinstance(masks, str | Mapping) or not isinstance(masks, Iterable):
        raise InvalidRequest(f"`masks` must be a list of texts, not {masks!r}.")
    found = tuple(dict.fromkeys(str(_parse(check_text("masks", mask))) for mask in masks))
    if len(found) > MAX_MASKS:
        raise InvalidRequest(f"A topic has at most {MAX_MASKS} masks, not {len(found)}.")
    return found


@lru_cache(maxsize=1024)
def _parse(mask: str) -> Name:
    accepted = f"{', '.join(WHOLE)}, headers.<name>, value or value.<path>"
    try:
        name = Name(mask) if mask in WHOLE else parse_name(mask)
    except InvalidFilter as error:
        raise InvalidRequest(f"A mask must be {accepted}, not '{mask[:80]}'.") from error
    if name.field not in (*WHOLE, "value"):
        raise InvalidRequest(f"A mask must be {accepted}, not '{mask[:80]}'.")
    if not all(isinstance(part, str) for part in name.path):
        raise InvalidRequest(f"A mask covers each element of a list. Remove the index from '{mask[:80]}'.")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """Masks what people see of the messages of a topic.

    Attributes:
        whole: The fields of `WHOLE` that are masked.
        headers: The names of single headers that are masked, without case.
        paths: The paths of the fields of the value that are masked. The empty path is the whole value.
    """

    whole: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()
    paths: Sequence[Path] = ()

    @classmethod
    def of(cls, masks: Iterable[str], key_field: str | None = None) -> Masks:
        """Return the masks of a topic.

        Args:
            masks: The masks, as the settings of the topic have them.
            key_field: The field of values from which clients take the key. It is masked together with the key.
        """
        names = [_parse(mask) for mask in masks]
        whole = {name.field for name in names if name.field in WHOLE and not name.path}
        paths = [tuple(map(str, name.path)) for name in names if name.field == "value"]
        if key_field is not None and "key" in whole:
            paths.append((key_field,))
        elif key_field is not None and any(path[:1] in ((), (key_field,)) for path in paths):
            whole.add("key")
        headers = {str(name.path[0]).casefold() for name in names if name.field == "headers" and name.path}
        return cls(whole=frozenset(whole), headers=frozenset(headers), paths=tuple(paths))

    def key(self, key: bytes | None) -> bytes | None:
        """Return what to show of a key."""
        return MASKED if key is not None and "key" in self.whole else key

    def text(self, field: str, text: str | None) -> str | None:
        """Return what to show of a text: a correlation id, an idempotency key or an error."""
        return MASK if text is not None and field in self.whole else text

    def shown_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return what to show of headers. Their names are never masked."""
        return {name: MASK if self._hides_header(name) else text for name, text in headers.items()}

    def value(self, value: bytes | None) -> bytes | None:
        """Return what to show of a value: JSON with masked fields, or `MASKED`.

        A value that is not JSON, has no fields, or is too large, is masked as a whole if a field is masked.
        """
        if value is None or not self.paths:
            return value
        try:
            found = _Masking().without(value, self.paths)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return MASKED
        return MASKED if found is _JSON_MASK else bytes(found)

    def hides(self, name: Name) -> bool:
        """Return whether a filter that uses the name would tell something about a masked field."""
        if name.field == "headers":
            return self._hides_header(str(name.path[0]))
        if name.field == "value":
            fields = tuple(part for part in name.path if isinstance(part, str))
            return any(path[: len(fields)] == fields[: len(path)] for path in self.paths)
        return name.field in self.whole

    def _hides_header(self, name: str) -> bool:
        return "headers" in self.whole or name.casefold() in self.headers


HIDDEN = Masks.of((*WHOLE, "value"))
"""The masks of a topic whose masks are not known."""


class _Masking:
    """Masks one value in JSON, with bounded work."""

    def __init__(self) -> None:
        self._left = _MAX_WORK

    def without(self, value: bytes | Raw, paths: Sequence[Path]) -> bytes | Raw:
        """Return the value without the fields. A list has them in each of its elements."""
        if () in paths:
            return _JSON_MASK
        self._left -= len(value) + _OPENING
        if self._left < 0:
            raise ValueError("The value is too large.")
        found = _OPENED.decode(value)
        if isinstance(found, list):
            return msgspec.json.encode([Raw(self.without(each, paths)) for each in found])
        if isinstance(found, dict):
            return msgspec.json.encode({name: self._field(name, each, paths) for name, each in found.items()})
        return value if found is None else _JSON_MASK

    def _field(self, name: str, value: Raw, paths: Sequence[Path]) -> Raw:
        below = [path[1:] for path in paths if path[0] == name]
        return Raw(self.without(value, below)) if below else value
