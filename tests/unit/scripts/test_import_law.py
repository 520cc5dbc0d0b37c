"""The import law: every package that it names exists, and the docs state the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checks.import_law import problems

PROJECT = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["cli", "(engine) | storage"]

[[tool.importlinter.contracts]]
type = "forbidden"
ignore_imports = ["lakelog.storage.** -> asyncpg"]
"""
DOCS = "The law:\n\n```\ncli\nstorage | engine\n```\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("engine", "storage"):
        folder = tmp_path / "src/lakelog" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (tmp_path / "src/lakelog/cli.py").touch()
    return tmp_path


def test_a_law_of_existing_packages_passes(root: Path) -> None:
    assert problems(PROJECT, DOCS, root) == []


def test_a_layer_that_does_not_exist_is_found_even_in_parentheses(root: Path) -> None:
    (root / "src/lakelog/engine/__init__.py").unlink()
    assert problems(PROJECT, DOCS, root) == ["lakelog.engine does not exist"]


def test_a_module_of_a_contract_that_does_not_exist_is_found(root: Path) -> None:
    project = PROJECT.replace("lakelog.storage.**", "lakelog.console.**")
    assert problems(project, DOCS, root) == ["lakelog.console does not exist"]


@pytest.mark.parametrize("docs", ["", "```\ncli\nstorage\n```\n", "```\ncli | storage\nengine\n```\n"])
def test_docs_that_state_another_law_are_found(root: Path, docs: str) -> None:
    assert problems(PROJECT, docs, root) == ["CONTRIBUTING.md does not state the layers of pyproject.toml"]
