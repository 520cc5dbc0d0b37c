"""Every code block of the README, docs/ and examples/ is run or compared by a test, or says why not."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lakelog.cli.app import app
from tests.kit.claims import CLAIMS, Claim
from tests.unit.docs.markdown import DOCS, ROOT, Fence, fences, prose, reference

PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
_RULE = """\
{place}: no test runs or compares this block of kind {kind!r}. Do one of these:
- write it as `python` that runs after the blocks above it, with its output in a block of kind `text` below;
- write it as `sh` with `lakelog` commands, which are parsed;
- add the test that runs it to CLAIMS in tests/kit/claims.py;
- write `<!-- not run: REASON -->` on the line above it."""


def unclaimed(page: Path, text: str) -> Iterator[str]:
    """Yield a message for each block of a page that is neither claimed nor explained."""
    kinds = {kind for claim in CLAIMS if page in claim.pages() for kind in claim.kinds}
    if re.search(r"^[ >]*(```|~~~)", prose(text), re.MULTILINE):
        yield f"{_place(page)}: a code block is indented, quoted, or not closed"
    for fence in fences(text):
        place = f"{_place(page)}:{fence.line}"
        if fence.reason is not None:
            if len(fence.reason.split()) < 2:
                yield f"{place}: {fence.reason!r} is no reason"
        elif fence.kind == "sh" and fence.kind not in kinds:
            yield from (f"{place}: {problem}" for problem in problems_of_commands(fence.text))
        elif fence.kind not in kinds:
            yield _RULE.format(place=place, kind=fence.kind)


def _place(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def problems_of_commands(text: str) -> Iterator[str]:
    """Yield what is wrong with the `lakelog` commands and the variables of a block for a shell."""
    checked = 0
    for line in text.replace("\\\n", " ").splitlines():
        for name in re.findall(r"\b(LAKELOG_\w+)=", line):
            checked += 1
            if f"`{name}`" not in _configuration():
                yield f"{name} is not in docs/reference/configuration.md"
        words = shlex.split(line.partition("|")[0], comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words and words[0] == "lakelog":
            checked += 1
            if problem := problem_of_command(words[1:]):
                yield f"`{line.strip()}`: {problem}"
    if not checked:
        yield "the block has no `lakelog` command that could be parsed: write `<!-- not run: REASON -->` above it"


def problem_of_command(words: list[str]) -> str | None:
    """Return why the command line refuses these words, or None. Nothing runs."""
    command = _root()
    context = command.make_context("lakelog", words)
    try:
        while hasattr(command, "resolve_command"):
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, rest, parent=context)
    except Exception as error:
        return str(getattr(error, "message", error)) or type(error).__name__
    return None


@functools.cache
def _root() -> Any:
    return typer.main.get_command(app)


@functools.cache
def _configuration() -> str:
    return reference("configuration")


@pytest.mark.parametrize("page", PAGES, ids=_place)
def test_every_block_is_claimed_or_explained(page: Path) -> None:
    problems = [*unclaimed(page, page.read_text())]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.test)
def test_a_claim_names_a_test_that_reads_the_page(claim: Claim) -> None:
    text = (ROOT / claim.test).read_text()
    pages = claim.pages()
    assert pages
    for page in pages:
        named = page.name in text or f'reference("{page.stem}")' in text or page.stem in text
        listed = re.search(r"\b(followed|spark|python)_pages\(\)", text)
        assert page.exists() and (named or listed), f"{claim.test} does not read {page.name}"


# The checker ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```sh\nlakelog topics create orders --partitions 4\n```", None),
        ("```sh\nexport LAKELOG_URL=x\nlakelog serve --workers 2\ncurl x\n```", None),
        ("```sh\nlakelog tail orders --json | jq .value   # the values\n```", None),
        ("<!-- not run: a diagram -->\n```text\na ── b\n```", None),
        ("<!-- not run: x -->\n```text\na\n```", "is no reason"),
        ("<!-- not run: a diagram -->\n\n```text\na\n```", "no test runs"),
        ("```python\nprint(1)\n```", "no test runs"),
        ("```\na\n```", "tests/kit/claims.py"),
        ("```sh\nls\n```", "no `lakelog` command"),
        ("```sh\nlakelog topics craete orders\n```", "craete"),
        ("```sh\nlakelog topics create orders --partition 4\n```", "--partition"),
        ("```sh\nlakelog topics create\n```", "Missing"),
        ("```sh\nexport LAKELOG_URLS=x\n```", "LAKELOG_URLS is not in"),
        ("1. A\n\n   ```sh\n   lakelog top\n   ```", "indented"),
    ],
)
def test_unclaimed_blocks_are_found(tmp_path: Path, block: str, problem: str | None) -> None:
    found = [*unclaimed(tmp_path / "page.md", f"# A\n\n{block}\n")]
    assert (found == []) if problem is None else problem in "\n".join(found), found


def test_the_line_of_a_block_is_that_of_its_fence() -> None:
    text = "# A\n\n<!-- not run: a diagram -->\n```text\na\n```\n"
    assert fences(text) == [Fence(kind="text", text="a\n", line=4, reason="a diagram")]
