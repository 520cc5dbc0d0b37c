"""Import cycles: those that run when modules load fail, those that are hidden are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checks.cycles import Graph, cycles, hidden_imports, import_graphs, modules_of


def graphs(folder: Path, **modules: str) -> tuple[Graph, Graph]:
    for name, text in modules.items():
        path = folder / "p" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return import_graphs(modules_of(folder))


@pytest.mark.parametrize("statement", ["import p.b", "from p import b", "from p.b import x", "from . import b"])
def test_a_cycle_is_found_whatever_the_statement(tmp_path: Path, statement: str) -> None:
    loading, _ = graphs(tmp_path, __init__="", a=statement, b="from p.c import y", c="if True:\n    import p.a")
    assert cycles(loading) == [{"p.a", "p.b", "p.c"}]


def test_a_package_and_its_module_can_form_a_cycle(tmp_path: Path) -> None:
    loading, _ = graphs(tmp_path, __init__="from p.a import x", a="from p import y")
    assert cycles(loading) == [{"p", "p.a"}]


def test_no_cycle_without_a_way_back(tmp_path: Path) -> None:
    loading, _ = graphs(tmp_path, __init__="", a="import p.b\nimport p.c", b="import p.c", c="import os")
    assert cycles(loading) == []


@pytest.mark.parametrize(
    "hidden",
    [
        "def f():\n    import p.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a",
        "import typing\nif typing.TYPE_CHECKING:\n    from p.a import x",
    ],
)
def test_imports_that_do_not_run_at_load_are_counted_only(tmp_path: Path, hidden: str) -> None:
    loading, every = graphs(tmp_path, __init__="", a="import p.b", b=hidden, c="def f():\n    import p.a")
    assert cycles(loading) == []
    assert hidden_imports(loading, every) == [("p.b", "p.a")]


def test_what_runs_only_outside_of_type_checking_counts(tmp_path: Path) -> None:
    outside = "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import p.a"
    loading, _ = graphs(tmp_path, __init__="", a="import p.b", b=outside)
    assert cycles(loading) == [{"p.a", "p.b"}]
