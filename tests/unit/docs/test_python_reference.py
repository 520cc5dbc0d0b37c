"""docs/reference/python.md: in step with the docstrings, and complete against the signatures at run time."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
import pytest

import lakelog
import lakelog.spark
import lakelog.testing
from lakelog.errors import all_errors
from scripts.checks import python_reference as generator

_HEADING = re.compile(r"^###+ (\S+)$", re.MULTILINE)
_ITEM = re.compile(r"^- `(\w+)`", re.MULTILINE)


@pytest.fixture(scope="module")
def found() -> generator.Catalogue:
    return generator.catalogue(generator.load())


@pytest.fixture(scope="module")
def page(found: generator.Catalogue) -> str:
    return generator.page(found)


def entries(page: str) -> dict[str, str]:
    """The text below each heading of a name, by name."""
    parts = _HEADING.split(page)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_public_name_is_on_the_page(page: str) -> None:
    names = set(entries(page))
    imported = {name for name in lakelog.__all__ if not generator.is_async(name)} - {"errors", "LakelogError"}
    assert imported <= names
    assert {f"lakelog.spark.{name}" for name in lakelog.spark.__all__} <= names
    assert {f"lakelog.testing.{name}" for name in lakelog.testing.__all__} <= names
    assert {f"lakelog.errors.{kind.__name__}" for kind in all_errors()} <= names


def test_every_async_name_has_a_described_twin(page: str) -> None:
    names = set(entries(page))
    twins = {name.removeprefix("Async").removesuffix("_async") for name in lakelog.__all__ if generator.is_async(name)}
    assert twins and twins <= names


def test_parameters_on_the_page_are_those_of_the_signatures(found: generator.Catalogue, page: str) -> None:
    listed = entries(page)
    compared = 0
    for prefix, objects in (
        ("", [*found.imported, *found.returned]),
        ("lakelog.spark.", found.spark),
        ("lakelog.testing.", found.testing),
    ):
        for each in objects:
            module = import_module(each.path.rpartition(".")[0])
            functions = {f"{prefix}{each.name}": getattr(module, each.name)} if each.is_function else {}
            if each.is_class:
                owner = getattr(module, each.name)
                members = [one for one in generator.public_members(each) if one.is_function]
                functions = {f"{prefix}{each.name}.{one.name}": getattr(owner, one.name) for one in members}
            for name, function in functions.items():
                compared += 1
                parameters = [one for one in inspect.signature(function).parameters if one not in ("self", "cls")]
                text = listed[name].partition("Parameters:")[2].partition("Raises:")[0]
                described = _ITEM.findall(text)
                assert described == parameters, name
    assert compared > 60


def test_a_missing_and_an_invented_parameter_are_found(tmp_path: Path) -> None:
    package = tmp_path / "src/lakelog"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('''
__all__ = ["call"]
def call(here: int, missing: int) -> None:
    """Do it.

    Args:
        here: A number.
        invented: Another.
    """
''')
    (package / "errors.py").write_text("")
    (package / "spark.py").write_text("__all__ = []")
    (package / "testing.py").write_text("__all__ = []")
    wrong = generator.problems(generator.catalogue(generator.load(tmp_path)))
    assert wrong == ["lakelog.call: missing is not described", "lakelog.call: invented does not exist"]


def example(docstring: str, tmp_path: Path) -> Any:
    (tmp_path / "sample.py").write_text(
        f'def f(a: int, /, b: str = "x", *c: int, d: bool, **e: int) -> int:\n    """{docstring}"""\n'
    )
    return griffe.load("sample", search_paths=[tmp_path], docstring_parser="google")["f"]


def test_a_signature_shows_every_kind_of_parameter(tmp_path: Path) -> None:
    assert generator.signature(example("Do it.", tmp_path)) == (
        "f(a: int, /, b: str = 'x', *c: int, d: bool, **e: int) -> int"
    )


def test_the_marks_of_positional_and_keyword_parameters_are_in_order(tmp_path: Path) -> None:
    (tmp_path / "marks.py").write_text("def f(a: int, /, *, b: int) -> int: ...\n")
    function: Any = griffe.load("marks", search_paths=[tmp_path])["f"]
    assert generator.signature(function) == "f(a: int, /, *, b: int) -> int"


def test_a_docstring_becomes_markdown(tmp_path: Path) -> None:
    function = example(
        "Do it.\n\n    Args:\n        a: A number.\n\n    Returns:\n        The sum.\n\n"
        "    Raises:\n        ValueError: If it is negative.\n    ",
        tmp_path,
    )
    assert [line for line in generator.body(function) if line] == [
        "Do it.",
        "Parameters:",
        "- `a`: A number.",
        "Returns: The sum.",
        "Raises:",
        "- `ValueError`: If it is negative.",
    ]
