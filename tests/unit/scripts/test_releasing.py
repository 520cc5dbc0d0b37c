"""`scripts/release`: the version, the notes, the metadata, the bill of materials, and all of it."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from scripts.releasing import artifacts, changelog, description, sbom
from tests.unit.docs.markdown import ROOT

METADATA = """\
Metadata-Version: 2.4
Name: lakelog
Version: 1.2.0
Summary: Topics
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Project-URL: Changelog, https://lakelog.example/changelog
Classifier: Typing :: Typed
Requires-Dist: msgspec>=0.20
Description-Content-Type: text/markdown

# Lakelog
"""


@pytest.mark.parametrize(
    ("present", "wanted", "version"),
    [("0.1.0.dev0", None, "0.1.0"), ("0.1.0.dev0", "0.2.0rc1", "0.2.0rc1"), ("1.2.0", None, "1.2.0")],
)
def test_the_version_is_that_of_the_project_without_dev(present: str, wanted: str | None, version: str) -> None:
    assert changelog.release_version(present, wanted) == version


@pytest.mark.parametrize("wanted", ["0.1", "2.0.0.dev1", "next", "1.2.0+mine"])
def test_other_versions_are_refused(wanted: str) -> None:
    with pytest.raises(SystemExit, match="release: "):
        changelog.release_version("1.2.0.dev0", wanted)


def test_the_notes_are_those_of_the_version_or_unreleased() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- B.\n\n## [1.0.0] - 2026-01-31\n\n### Fixed\n\n- A.\n"
    assert changelog.section(text, "1.0.0") == "### Fixed\n\n- A."
    assert changelog.section(text, "1.1.0") == "### Added\n\n- B."
    assert changelog.problems_of_notes(changelog.section(text, "1.1.0")) == []
    assert changelog.problems_of_notes("") == ["CHANGELOG.md has no entry for the release"]
    assert changelog.problems_of_notes("- A.") == ["CHANGELOG.md: the notes have no heading such as '### Added'"]
    assert len(changelog.problems_of_notes("### New\n### Added\n### Added")) == 2


def test_the_changelog_of_the_project_can_be_released() -> None:
    notes = changelog.section((ROOT / "CHANGELOG.md").read_text(), "0.1.0")
    assert changelog.problems_of_notes(notes) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Version: 1.2.0", "Version: 1.1.0", "the version is 1.1.0, not 1.2.0"),
        ("Version: 1.2.0", "Version: one", "metadata: "),
        ("Summary: Topics\n", "", "summary is missing"),
        ("License-Expression: Apache-2.0", "License-Expression: Whatever", "metadata: "),
        ("text/markdown", "text/plain", "is not text/markdown"),
        ("msgspec>=0.20", "msgspec", "msgspec has no version"),
        ("msgspec>=0.20", "msgspec @ https://example.org/x.whl", "msgspec has a URL"),
        ("# Lakelog", "# Lakelog\n\n[a](docs/b.md)", "the link docs/b.md is relative"),
    ],
)
def test_wrong_metadata_is_found(old: str, new: str, problem: str) -> None:
    assert list(artifacts.problems_of_metadata(METADATA, "1.2.0")) == []
    found = list(artifacts.problems_of_metadata(METADATA.replace(old, new), "1.2.0"))
    assert any(problem in each for each in found), found


def test_files_of_a_wheel_are_those_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "src/lakelog"
    source.mkdir(parents=True)
    for name in ("__init__.py", "py.typed", "schema.sql"):
        (source / name).write_text("")
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        names = ("lakelog/__init__.py", "lakelog/py.typed", "tests/key.pem", "lakelog-1.2.0.dist-info/licenses/LICENSE")
        for name in names:
            archive.writestr(name, "")
        archive.writestr("lakelog-1.2.0.dist-info/METADATA", METADATA)
        archive.writestr("lakelog-1.2.0.dist-info/entry_points.txt", "lakelog = lakelog.cli:main")
    assert list(artifacts.problems_of_wheel(wheel, tmp_path, "1.2.0")) == [
        "wheel: lakelog/schema.sql is missing",
        "wheel: tests/key.pem is not in src",
        "wheel: tests/key.pem must not be in it",
        "wheel: tests/key.pem is at the top",
        "wheel: the entry point '[pytest11]' is missing",
    ]


def test_the_description_has_links_to_the_site_only() -> None:
    site = description.site_url((ROOT / "mkdocs.yml").read_text())
    text = description.absolute((ROOT / "README.md").read_text(), ROOT, site)
    assert description.relative_links(text) == []
    assert f"({site}howto/write-a-worker/)" in text and f"({site}project/changelog/)" in text


def test_a_bill_of_materials_names_versions_licenses_hashes_and_dependencies() -> None:
    lock = "a-b==1.0 \\\n    --hash=sha256:" + "0" * 64 + " \\\n    --hash=sha256:" + "1" * 64 + "\n    # via c\nd==2\n"
    hashes = sbom.locked_hashes(lock)
    own = sbom.Installed(name="lakelog", version="1.2.0", license="Apache-2.0", requires=("A_b", "absent"))
    others = [
        sbom.Installed(name="d", version="2", license=None),
        sbom.Installed(name="A.b", version="1.0", license="MIT", requires=("d",)),
    ]
    made = sbom.bill(own, "f" * 64, others, hashes)
    assert [each["purl"] for each in made["components"]] == ["pkg:pypi/a-b@1.0", "pkg:pypi/d@2"]
    assert [each["content"][0] for each in made["components"][0]["hashes"]] == ["0", "1"]
    assert made["dependencies"][0] == {"ref": "pkg:pypi/lakelog@1.2.0", "dependsOn": ["pkg:pypi/a-b@1.0"]}
    assert made["dependencies"][1]["dependsOn"] == ["pkg:pypi/d@2"]
    assert sbom.problems_of_bill(made) == ["SBOM: d has no licenses", "SBOM: d has no hashes"]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_dry_run_builds_checks_and_tries_a_release(tmp_path: Path) -> None:
    argv = [str(ROOT / "scripts/release"), "--dry-run", "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    made = json.loads((tmp_path / "sbom.cdx.json").read_text())
    assert {"asyncpg", "msgspec", "uvicorn"} <= {each["name"] for each in made["components"]}
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert artifacts.checksum(tmp_path / name) == digest
