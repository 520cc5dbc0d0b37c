"""Reads YAML as fields with line numbers, so that every error names the line. It knows no topics and groups."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from lakelog.cli.units import parse_duration, parse_size
from lakelog.errors import InvalidRequest

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A value of the file. `path` names it, such as `topics.orders.partitions`."""

    node: yaml.Node
    loader: yaml.SafeLoader
    file: str
    path: str

    @property
    def is_null(self) -> bool:
        return bool(self.node.tag == "tag:yaml.org,2002:null")

    @property
    def is_mapping(self) -> bool:
        import yaml

        return isinstance(self.node, yaml.MappingNode)

    @property
    def raw(self) -> str:
        """The text of a scalar in the file."""
        import yaml

        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error(f"`{self.path}` must be a single value.")
        return str(self.node.value)

    def error(self, detail: str) -> InvalidRequest:
        """Return the error with the place in the file."""
        return InvalidRequest(f"{self.file}:{self.node.start_mark.line + 1}: {detail}")

    def checked(self, check: Callable[[], T]) -> T:
        """Return the result of a check. Its error gets the place in the file."""
        try:
            return check()
        except typer.BadParameter as error:
            raise self.error(f"`{self.path}`: {error.message}") from None
        except InvalidRequest as error:
            raise self.error(f"`{self.path}`: {error.detail}") from None

    def value(self) -> Any:
        """Return the value with everything in it."""
        import yaml

        try:
            return self.loader.construct_object(self.node, deep=True)
        except yaml.YAMLError as error:
            reason = getattr(error, "problem", None) or str(error)
            raise self.error(f"`{self.path}` cannot be read: {reason}.") from None

    def text(self) -> str:
        return self._typed(str, "a text", "; put it in quotes")

    def number(self) -> int:
        return self._typed(int, "a whole number")

    def flag(self) -> bool:
        return self._typed(bool, "true or false")

    def decimal(self) -> float:
        found = self.value()
        return float(found) if type(found) is int else self._typed(float, "a number")

    def duration(self) -> timedelta:
        """Return a duration such as `7d`."""
        return self.checked(lambda: parse_duration(self.raw))

    def size(self) -> int:
        """Return the bytes of a size such as `10GiB`."""
        return self.checked(lambda: parse_size(self.raw))

    def choice(self, kind: type[Choice]) -> Choice:
        try:
            return kind(self.raw)
        except ValueError:
            choices = ", ".join(kind)
            raise self.error(f"`{self.path}` must be one of {choices}, not {self.raw!r}.") from None

    def texts(self) -> tuple[str, ...]:
        import yaml

        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"`{self.path}` must be a list of texts.")
        items = (Field(node=node, loader=self.loader, file=self.file, path=self.path) for node in self.node.value)
        return tuple(item.text() for item in items)

    def fields(self) -> dict[str, Field]:
        """Return the fields of a mapping, by name. An empty value is a mapping without fields."""
        import yaml

        if self.is_null:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            what = f"`{self.path}`" if self.path else "The file"
            raise self.error(f"{what} must have fields, such as `name: value`.")
        names = [str(key.value) for key, _ in self.node.value]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise self._inner(name, self.node.value[index][0]).error(f"`{name}` is given twice.")
        # Merge keys (`<<: *shared`) become fields, before those that override them.
        self.loader.flatten_mapping(self.node)
        return {str(key.value): self._inner(str(key.value), node) for key, node in self.node.value}

    def _inner(self, name: str, node: yaml.Node) -> Field:
        path = f"{self.path}.{name}" if self.path else name
        return Field(node=node, loader=self.loader, file=self.file, path=path)

    def known_fields(self, known: Collection[str]) -> Iterator[tuple[str, Field]]:
        """Yield the fields of a mapping. Raise an error for an unknown one that names the nearest known field."""
        for name, field in self.fields().items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                advice = f"Did you mean `{near[0]}`?" if near else f"Known fields: {', '.join(known)}."
                raise field.error(f"`{field.path}` is not a known field. {advice}")
            yield name, field

    def _typed(self, kind: type[T], said: str, advice: str = "") -> T:
        found = self.value()
        if type(found) is not kind:
            raise self.error(f"`{self.path}` must be {said}, not {found!r}{advice}.")
        return found


def read_yaml(text: str, file: str) -> Field | None:
    """Return the root of a YAML document; None if it is empty.

    Args:
        text: The document.
        file: The name of the file, for errors.
    """
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise InvalidRequest(f"{file}:{line}: The file is not YAML: {reason}.") from None
    return None if node is None else Field(node=node, loader=loader, file=file, path="")
