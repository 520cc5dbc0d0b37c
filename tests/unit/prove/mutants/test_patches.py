"""The patches of the seeded bugs apply to the current code, and change it."""

from __future__ import annotations

import compileall
import filecmp
import re
from pathlib import Path

import pytest

from prove.mutants.catalog import MUTANTS, PATCHES, Mutant
from prove.mutants.patched_tree import ROOT, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_the_code_and_changes_it(mutant: Mutant, tmp_path: Path) -> None:
    tree = mutated(mutant, tmp_path)
    named = re.findall(r"^\+\+\+ b/src/(.+)$", mutant.patch.read_text(), re.MULTILINE)
    assert named
    for path in named:
        assert not filecmp.cmp(tree / path, ROOT / "src" / path, shallow=False)
        assert not path.endswith(".py") or compileall.compile_file(tree / path, quiet=1)


def test_every_patch_is_in_the_catalog() -> None:
    assert {path.stem for path in PATCHES.glob("*.patch")} == {mutant.name for mutant in MUTANTS}
    assert len(MUTANTS) == 12
