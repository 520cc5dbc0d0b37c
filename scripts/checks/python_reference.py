"""Writes docs/reference/python.md from the docstrings of the public names: `scripts/docs reference [--check]`.

Griffe reads signatures and Google-style docstrings without importing the package. A class that a public function
returns is public too, and is described after the classes that users import.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/python.md"
WIDTH = 100
_INTERNAL = {"finish_at_exit", "finish", "reset_after_fork"}
"""Methods that a client calls on its own producers."""
_HIDDEN = ("lakelog.wire.", "lakelog.engine.", "lakelog.client.publishing.")
"""Classes of these packages are no part of the public interface, even where a public class has one as a field."""
_CLOSED = "lakelog.client.worker."
"""The fields of these classes are not followed: a subscription holds its handler and options."""
_STARS: dict[griffe.ParameterKind | None, str] = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}
_INTRODUCTION = """\
# Python reference

`scripts/docs reference` generates this page from the docstrings. Each class of the client has an
async form whose name begins with `Async`, such as `AsyncTopic` for `Topic`. It has the same methods
with the same parameters, and the methods that call a server are coroutines. `lakelog.connect`
returns the sync client, `lakelog.connect_async` the async client.
"""


@dataclass(kw_only=True)
class Catalogue:
    """The public objects by section, in the order of the page."""

    imported: list[griffe.Object] = field(default_factory=list)
    returned: list[griffe.Object] = field(default_factory=list)
    errors: list[griffe.Object] = field(default_factory=list)
    spark: list[griffe.Object] = field(default_factory=list)
    testing: list[griffe.Object] = field(default_factory=list)


def load(root: Path = ROOT) -> griffe.Module:
    """Return the package with parsed docstrings."""
    package = griffe.load("lakelog", search_paths=[root / "src"], docstring_parser="google", resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    return package


def catalogue(package: griffe.Module) -> Catalogue:
    """Return the public objects: those that a module exports, and those that their functions return."""
    found = Catalogue()
    errors = package["errors"]
    for name in sorted(map(str, package.exports or ())):
        if name != "errors" and not is_async(name):
            found.imported.append(target(package[name]))
    found.errors = [each for each in errors.members.values() if isinstance(each, griffe.Class)]
    found.imported = [each for each in found.imported if each not in found.errors]
    found.spark, found.testing = _exported(package, "spark"), _exported(package, "testing")
    known = {each.path for each in [*found.imported, *found.errors, *found.spark, *found.testing]}
    pending = [*found.imported, *found.spark, *found.testing]
    while pending:
        for returned in returned_classes(pending.pop(0), package):
            if returned.path not in known:
                known.add(returned.path)
                found.returned.append(returned)
                pending.append(returned)
    found.returned.sort(key=lambda each: each.name)
    return found


def _exported(package: griffe.Module, module: str) -> list[griffe.Object]:
    """Return the names that a module of the package exports, sorted."""
    found = package[module]
    return [target(found[name]) for name in sorted(map(str, found.exports or ()))]


def is_async(name: str) -> bool:
    """Return whether a name is the async form of another."""
    return name.startswith("Async") or name.endswith("_async")


def target(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return the object that an alias leads to."""
    return found.final_target if isinstance(found, griffe.Alias) else found


def returned_classes(owner: griffe.Object, package: griffe.Module) -> Iterator[griffe.Object]:
    """Yield the classes of ours in the types that functions return and attributes have."""
    members = [owner] if owner.is_function else [*public_members(owner)]
    if owner.path.startswith(_CLOSED):
        members = []
    for member in members:
        annotation = member.returns if isinstance(member, griffe.Function) else getattr(member, "annotation", None)
        for path in _names(annotation):
            if path.startswith("lakelog."):
                found = _lookup(package, path)
                if found is not None and found.is_class and is_public(found):
                    yield found


def is_public(found: griffe.Object) -> bool:
    """Return whether a class that a call returns has to be described."""
    return not (found.name.startswith("_") or is_async(found.name) or found.path.startswith(_HIDDEN))


def _names(annotation: str | griffe.Expr | None) -> Iterator[str]:
    if isinstance(annotation, griffe.Expr):
        for part in annotation.iterate(flat=True):
            if isinstance(part, griffe.ExprName):
                yield part.canonical_path


def _lookup(package: griffe.Module, path: str) -> griffe.Object | None:
    try:
        return target(package[path.removeprefix("lakelog.")])
    except (KeyError, griffe.AliasResolutionError):
        return None


def public_members(owner: griffe.Object) -> Iterator[griffe.Object]:
    """Yield the methods, properties and fields of a class that users may use, its own before inherited ones."""
    is_error = owner.path.startswith("lakelog.errors.")
    # Members that an error inherits are described with the base class.
    for name, member in (owner.members if is_error else owner.all_members).items():
        if name.startswith("_") or name in _INTERNAL or (is_error and name in ("code", "retryable")):
            continue
        found = target(member)
        if found.path.startswith("lakelog.") and not found.is_class and not found.is_module:
            yield found


def sections(found: griffe.Object) -> dict[str, list[griffe.DocstringSection]]:
    """Return the parts of a docstring by kind: text, parameters, returns, raises and others."""
    parts: dict[str, list[griffe.DocstringSection]] = {}
    for section in found.docstring.parsed if found.docstring else ():
        parts.setdefault(section.kind.value, []).append(section)
    return parts


def parameters_of(function: griffe.Function) -> list[griffe.Parameter]:
    """Return the parameters that a caller passes."""
    return [each for each in function.parameters if each.name not in ("self", "cls")]


def documented(found: griffe.Object) -> list[str]:
    """Return the names that the sections Args and Attributes describe."""
    described = [part for kind in ("parameters", "attributes") for part in sections(found).get(kind, ())]
    return [each.name.lstrip("*") for section in described for each in section.value]


def signature(function: griffe.Function) -> str:
    """Return the call as code, on one line if it fits."""
    parts: list[str] = []
    previous: griffe.ParameterKind | None = None
    for each in parameters_of(function):
        if previous is griffe.ParameterKind.positional_only and each.kind is not previous:
            parts.append("/")
        if each.kind is griffe.ParameterKind.keyword_only and previous not in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        ):
            parts.append("*")
        previous = each.kind
        stars = _STARS.get(each.kind, "")
        annotation = f": {each.annotation}" if each.annotation else ""
        default = f" = {each.default}" if each.default is not None and not stars else ""
        parts.append(f"{stars}{each.name}{annotation}{default}")
    if previous is griffe.ParameterKind.positional_only:
        parts.append("/")
    end = f") -> {function.returns}" if function.returns else ")"
    line = f"{function.name}({', '.join(parts)}{end}"
    return line if len(line) <= WIDTH else f"{function.name}(\n" + "".join(f"    {each},\n" for each in parts) + end


def describe(found: griffe.Object, prefix: str) -> Iterator[str]:
    """Yield the lines of an object: a heading, its signature, and its docstring; a class with its members."""
    name = f"{prefix}{found.name}"
    if isinstance(found, griffe.Function):
        yield from [f"### {name}", "", "```python", signature(found), "```", ""]
        yield from body(found)
        return
    yield from [f"### {name}", ""]
    if isinstance(found, griffe.Class) and "code" in found.members:
        bases = ", ".join(f"`{base}`" for base in found.bases)
        yield from [f"Base class: {bases}. Code: `{_value(found, 'code')}`.", ""]
    yield from body(found)
    for method in public_members(found):
        if isinstance(method, griffe.Function):
            yield from [f"#### {name}.{method.name}", "", "```python", signature(method), "```", ""]
            yield from body(method)


def _value(owner: griffe.Class, name: str) -> str:
    return str(getattr(owner.members[name], "value", "")).strip("'\"")


def body(found: griffe.Object) -> Iterator[str]:
    """Yield the text of a docstring, its parameters, result and errors."""
    parts = sections(found)
    for section in parts.get("text", ()):
        yield from [*paragraphs(section.value), ""]
    for section in parts.get("parameters", ()):
        yield from ["Parameters:", ""]
        for each in section.value:
            yield from item(each.name, each.description, None if found.is_function else each.annotation)
        yield ""
    listed = {each.name: each for section in parts.get("attributes", ()) for each in section.value}
    members = [] if found.is_function else [*public_members(found)]
    others = [each for each in members if isinstance(each, griffe.Attribute) and each.docstring]
    others = [each for each in others if each.name not in listed]
    if listed or others:
        yield from ["Attributes:", ""]
        for each in listed.values():
            yield from item(each.name, each.description, each.annotation)
        for other in others:
            yield from item(other.name, " ".join(_text(other)), other.annotation)
        yield ""
    for kind, title in (("returns", "Returns"), ("yields", "Yields")):
        for section in parts.get(kind, ()):
            text = " ".join(each.description for each in section.value)
            yield from [*wrapped(f"{title}: {text}"), ""]
    for section in parts.get("raises", ()):
        yield from ["Raises:", ""]
        for each in section.value:
            yield from item(str(each.annotation), each.description)
        yield ""
    for section in parts.get("examples", ()):
        for kind, text in section.value:
            code = kind is griffe.DocstringSectionKind.examples
            yield from (["```python", *text.splitlines(), "```", ""] if code else [*paragraphs(text), ""])


def _text(found: griffe.Object) -> list[str]:
    return [" ".join(section.value.split()) for section in sections(found).get("text", ())]


def paragraphs(text: str) -> Iterator[str]:
    """Yield a text wrapped by paragraph; indented lines are code and stay."""
    is_first = True
    for paragraph in text.split("\n\n"):
        if not is_first:
            yield ""
        is_first = False
        if paragraph.startswith("    "):
            yield from ["```", *textwrap.dedent(paragraph).splitlines(), "```"]
        elif paragraph.lstrip().startswith(("- ", "* ")):
            yield from paragraph.splitlines()
        else:
            yield from wrapped(paragraph)


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """Return a text as lines of at most 100 columns."""
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def item(name: str, description: str, annotation: object = None) -> list[str]:
    """Return a list item that explains a name, with its type if one is given."""
    kind = f" (`{annotation}`)" if annotation else ""
    return wrapped(f"`{name}`{kind}: {description}", "- ", "  ")


def page(found: Catalogue) -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION]
    for title, prefix, objects in (
        ("Names of lakelog", "", found.imported),
        ("Values and objects that calls return", "", found.returned),
        ("Names of lakelog.spark", "lakelog.spark.", found.spark),
        ("Names of lakelog.testing", "lakelog.testing.", found.testing),
        ("Errors", "lakelog.errors.", found.errors),
    ):
        lines += [f"## {title}", ""]
        for each in objects:
            lines += describe(each, prefix)
    return "\n".join(lines).rstrip() + "\n"


def problems(found: Catalogue) -> list[str]:
    """Return the parameters that no docstring describes, and the described ones that do not exist."""
    wrong = []
    for owner in [*found.imported, *found.returned, *found.spark, *found.testing, *found.errors]:
        described = documented(owner)
        if isinstance(owner, griffe.Class):
            described += [name for base in owner.mro() for name in documented(base)]
        if not owner.docstring:
            wrong.append(f"{owner.path} has no docstring")
        for member in [owner] if owner.is_function else public_members(owner):
            if isinstance(member, griffe.Function):
                wrong += undocumented(member)
            elif not member.docstring and member.name not in described:
                wrong.append(f"{owner.path}: {member.name} is not described")
    return wrong


def undocumented(function: griffe.Function) -> Iterator[str]:
    """Yield the differences between the parameters of a function and its docstring."""
    described = documented(function)
    names = [each.name for each in parameters_of(function)]
    yield from (f"{function.path}: {name} is not described" for name in names if name not in described)
    yield from (f"{function.path}: {name} does not exist" for name in described if name not in names)
    if not function.docstring:
        yield f"{function.path} has no docstring"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with the docstrings."""
    parser = argparse.ArgumentParser(prog="scripts/docs reference", description="Generate docs/reference/python.md.")
    parser.add_argument("--check", action="store_true", help="fail if the page is not in step with the docstrings")
    options = parser.parse_args(arguments)
    found = catalogue(load())
    wrong = problems(found)
    for problem in wrong:
        print(f"docs: {problem}")
    new = page(found)
    old = PAGE.read_text() if PAGE.exists() else ""
    if not options.check:
        PAGE.write_text(new)
    elif new != old:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "python.md", "generated", lineterm="", n=0)
        print("\n".join([*lines][:40]))
        print("docs: docs/reference/python.md is not in step with the docstrings; run scripts/docs reference")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
