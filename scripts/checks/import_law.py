"""Fails if the import law names a package that does not exist, or the docs state another law.

The law is the list of layers in pyproject.toml, which import-linter enforces. CONTRIBUTING.md repeats it for people.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```\n(cli\b.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"lakelog(?:\.\w+)+")

Law = list[list[str]]
"""The rows from top to bottom, each with its packages."""


def law_of_project(text: str) -> Law:
    """Return the layers that import-linter enforces."""
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [_row(layer) for layer in layers]


def law_of_docs(text: str) -> Law:
    """Return the layers that a document states in a code block that begins with `cli`."""
    block = _BLOCK.search(text)
    return [_row(line) for line in block[1].splitlines()] if block else []


def _row(line: str) -> list[str]:
    return [name.strip(" ()") for name in line.split("|")]


def modules_of_project(text: str) -> set[str]:
    """Return every module of ours that a contract names."""
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return {name for contract in contracts for name in _NAME.findall(str(contract))}


def exists(module: str, root: Path = ROOT) -> bool:
    """Return whether src has a module or package with this dotted name."""
    path = root / "src" / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def problems(project: str, contributing: str, root: Path = ROOT) -> list[str]:
    """Return what is wrong with the law, a line each."""
    law, stated = law_of_project(project), law_of_docs(contributing)
    named = {f"lakelog.{name}" for row in [*law, *stated] for name in row} | modules_of_project(project)
    found = [f"{name} does not exist" for name in sorted(named) if not exists(name, root)]
    if [sorted(row) for row in law] != [sorted(row) for row in stated]:
        found.append("CONTRIBUTING.md does not state the layers of pyproject.toml")
    return found


def main() -> int:
    """Print what is wrong with the law, and fail if anything is."""
    found = problems((ROOT / "pyproject.toml").read_text(), (ROOT / "CONTRIBUTING.md").read_text())
    for problem in found:
        print(f"import law: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
