"""The requests of the table of operations: an unknown field is refused at any depth, as a mistake of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from lakelog.wire.operations import OPERATIONS

REQUESTS = sorted({each.request for each in OPERATIONS if each.request is not None}, key=lambda each: each.__name__)


def _parts(kind: Any) -> Iterator[inspect.Type]:
    """Yield a type and the types of its fields, items and members."""
    yield kind
    for name in kind.__struct_fields__:
        part = getattr(kind, name)
        found = [each.type for each in part] if name == "fields" else part if isinstance(part, tuple) else [part]
        for each in found:
            if isinstance(each, inspect.Type):
                yield from _parts(each)


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda each: each.__name__)
def test_a_request_refuses_unknown_fields_at_any_depth(request_type: type[msgspec.Struct]) -> None:
    for part in _parts(inspect.type_info(request_type)):
        assert not isinstance(part, inspect.DataclassType | inspect.TypedDictType), part
        assert not isinstance(part, inspect.StructType) or part.forbid_unknown_fields, part
