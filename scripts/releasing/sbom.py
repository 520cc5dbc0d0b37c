"""The software bill of materials: what an installation of the wheel with its server extra consists of.

It is CycloneDX 1.6 in JSON. Versions and licenses are those of the clean environment, hashes those of the lock file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_PACKAGE = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.IGNORECASE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A distribution of the environment."""

    name: str
    version: str
    license: str | None
    requires: tuple[str, ...] = ()


def locked_hashes(lock: str) -> Mapping[tuple[str, str], list[str]]:
    """Return the SHA-256 hashes of each package of the lock file, by name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    current: list[str] = []
    for line in lock.splitlines():
        if match := _PACKAGE.match(line):
            current = found.setdefault((normal(match[1]), match[2]), [])
        current += _HASH.findall(line)
    return found


def bill(
    lakelog: Installed, sha256: str, others: Iterable[Installed], hashes: Mapping[tuple[str, str], list[str]]
) -> dict[str, Any]:
    """Return the bill of materials.

    Args:
        lakelog: The released distribution.
        sha256: The hash of its wheel.
        others: The distributions that were installed with it.
        hashes: The hashes of the lock file.
    """
    components = sorted(others, key=lambda each: normal(each.name))
    references = {normal(each.name): _reference(each) for each in [lakelog, *components]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(lakelog, [sha256])},
        "components": [_component(each, hashes.get((normal(each.name), each.version), ())) for each in components],
        "dependencies": [
            {
                "ref": _reference(each),
                "dependsOn": sorted({references[name] for name in map(normal, each.requires) if name in references}),
            }
            for each in [lakelog, *components]
        ],
    }


def problems_of_bill(found: dict[str, Any]) -> list[str]:
    """Return components without a version, a license or a hash. A file that was not locked has no hash."""
    wrong = []
    for each in found["components"]:
        wrong += [f"SBOM: {each['name']} has no {field}" for field in ("licenses", "hashes") if not each.get(field)]
    return wrong


def normal(name: str) -> str:
    """Return the normalised name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _reference(each: Installed) -> str:
    return f"pkg:pypi/{normal(each.name)}@{each.version}"


def _component(each: Installed, hashes: Iterable[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(each),
        "name": each.name,
        "version": each.version,
        "purl": _reference(each),
        # A package has a hash for each of its files; any of them may have been installed.
        "hashes": [{"alg": "SHA-256", "content": content} for content in hashes],
    }
    if each.license:
        shown["licenses"] = [{"license": {"name": each.license}}]
    return shown
