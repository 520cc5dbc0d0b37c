"""Finds symbols in files, and the links of a text that name one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.markdown import links

_SYMBOL = r"`(?P<symbol>[A-Za-z_][\w.]*)(?:\(\))?`"
_IN_LINK = re.compile(_SYMBOL)
_BEFORE = re.compile(_SYMBOL + r"(?: in | of | \(| )$")
_AFTER = re.compile(r"^(?:: | |\): | \()" + _SYMBOL)
_SUFFIXES = (".py", ".sql", ".md", ".toml", ".json")


def symbol_links(text: str) -> Iterator[tuple[str, str]]:
    """Symbol and target: [`Name`](file), `Name` in [text](file), [text](file): `Name`."""
    for link in links(text):
        if "://" in link.target or not link.target.partition("#")[0].endswith((".py", ".sql")):
            continue
        inside = _IN_LINK.fullmatch(link.text.strip())
        found = inside or _BEFORE.search(text[: link.start]) or _AFTER.match(text[link.end :])
        if found and not found["symbol"].endswith(_SUFFIXES):
            yield found["symbol"], link.target


def defines(path: Path, symbol: str) -> bool:
    """Whether the file defines the symbol: a class, a function, a method, a module's name; in SQL an object."""
    if path.suffix == ".sql":
        return _sql_defines(path.read_text(), symbol)
    names = symbol.split(".")
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for name in names:
        found = next((node for node in body if name in _names(node)), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def _sql_defines(text: str, symbol: str) -> bool:
    name = re.escape(symbol.removeprefix("lakelog."))
    made = rf"create (?:or replace )?(?:function|table|type) (?:lakelog\.)?{name}\b"
    query = rf"^-- {name}:"
    return re.search(made, text, re.IGNORECASE) is not None or re.search(query, text, re.MULTILINE) is not None
