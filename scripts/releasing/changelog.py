"""The version of a release, and its section of CHANGELOG.md."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<day>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
_KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def release_version(present: str, wanted: str | None) -> str:
    """Return the version of the release: the wanted one, or the present one without its development part."""
    try:
        version = Version(wanted or Version(present).base_version)
    except InvalidVersion as error:
        raise SystemExit(f"release: {error}") from error
    if version.is_devrelease or version.local:
        raise SystemExit(f"release: {version} is a development version")
    if version < Version(present):
        raise SystemExit(f"release: {version} is before {present}, the version of pyproject.toml")
    return str(version)


def section(text: str, version: str) -> str:
    """Return the notes of the version; those of Unreleased if the changelog does not name the version yet."""
    found: dict[str, str] = {}
    headings = list(_HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        found[heading["name"]] = text[heading.end() : following.start() if following else len(text)].strip()
    return found.get(version) or found.get("Unreleased", "")


def problems_of_notes(notes: str) -> list[str]:
    """Return what is wrong with the notes of a release."""
    if not notes:
        return ["CHANGELOG.md has no entry for the release"]
    kinds = re.findall(r"^### (.+)$", notes, re.MULTILINE)
    wrong = [f"CHANGELOG.md: '{kind}' is not one of {', '.join(_KINDS)}" for kind in kinds if kind not in _KINDS]
    wrong += [f"CHANGELOG.md: '{kind}' appears twice" for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]
    return wrong if kinds else ["CHANGELOG.md: the notes have no heading such as '### Added'"]
