"""Fails on an import cycle among the modules of src: `python -m scripts.checks.cycles`.

An import inside a function or under TYPE_CHECKING runs later or never, so it cannot form a cycle when modules load. It
can still hide one: the number of such imports is printed, and `--hidden` lists them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Graph = dict[str, set[str]]
"""The modules that each module imports."""


def modules_of(folder: Path) -> dict[str, Path]:
    """Return the files of all modules below a folder such as src, by dotted name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graphs(modules: Mapping[str, Path]) -> tuple[Graph, Graph]:
    """Return the imports that run when a module loads, and all imports."""
    loading: Graph = {name: set() for name in modules}
    every: Graph = {name: set() for name in modules}
    for name, path in modules.items():
        for node, is_loading in _imports(ast.parse(path.read_text())):
            for target in _targets(node, name, path.name == "__init__.py", modules):
                every[name].add(target)
                if is_loading:
                    loading[name].add(target)
    return loading, every


def _imports(node: ast.AST, is_loading: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, is_loading
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        negated = isinstance(node.test, ast.UnaryOp)
        for child in node.body:
            yield from _imports(child, is_loading and negated)
        for child in node.orelse:
            yield from _imports(child, is_loading and not negated)
    else:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.iter_child_nodes(node):
            yield from _imports(inner, is_loading and not is_function)


def _targets(
    node: ast.Import | ast.ImportFrom, name: str, is_package: bool, modules: Mapping[str, Path]
) -> Iterator[str]:
    """Yield the modules of ours that a statement imports; `from package import module` imports the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules and alias.name != name)
        return
    base = node.module or ""
    if node.level:
        parts = name.split(".")
        above = parts[: len(parts) - node.level + is_package]
        base = ".".join([*above, *filter(None, [node.module])])
    for alias in node.names:
        target = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
        if target in modules and target != name:
            yield target


def cycles(graph: Graph) -> list[set[str]]:
    """Return the groups of modules that import each other, directly or through others (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in path:
                lowest[module] = min(lowest[module], order[target])
        if lowest[module] == order[module]:
            start = path.index(module)
            group = set(path[start:])
            del path[start:]
            if len(group) > 1:
                found.append(group)

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return found


def hidden_imports(loading: Graph, every: Graph) -> list[tuple[str, str]]:
    """Return the imports that would form a cycle if they ran when their module loads."""
    return [
        (module, target)
        for group in cycles(every)
        for module in sorted(group)
        for target in sorted((every[module] - loading[module]) & group)
    ]


def main(arguments: list[str]) -> int:
    """Print the cycles, and fail if there is one."""
    loading, every = import_graphs(modules_of(ROOT / "src"))
    found = cycles(loading)
    for group in found:
        print("import cycle: " + ", ".join(sorted(group)))
        for module in sorted(group):
            print(f"  {module} imports " + ", ".join(sorted(loading[module] & group)))
    hidden = hidden_imports(loading, every)
    if hidden:
        print(f"cycles: {len(hidden)} imports in functions or under TYPE_CHECKING hide a cycle")
    if "--hidden" in arguments:
        print("".join(f"  {module} imports {target}\n" for module, target in hidden), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
