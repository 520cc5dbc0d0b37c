"""The wheel and the sdist: their metadata, and what they contain."""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import Metadata

from scripts.releasing.description import relative_links

_PACKAGES = ("lakelog/", "pyspark_lakelog/")
_NEVER = re.compile(r"(^|/)(tests?|__pycache__|\.venv|\.env)(/|$)|\.(pyc|pem|key)$")


def problems_of_metadata(text: str | bytes, version: str) -> Iterator[str]:
    """Yield what is wrong with the METADATA of a wheel or the PKG-INFO of an sdist."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        yield from (f"metadata: {error}" for error in group.exceptions)
        return
    if str(metadata.version) != version:
        yield f"metadata: the version is {metadata.version}, not {version}"
    for name in ("summary", "license_expression", "license_files", "requires_python", "project_urls", "classifiers"):
        if not getattr(metadata, name):
            yield f"metadata: {name} is missing"
    if not (metadata.description_content_type or "").startswith("text/markdown"):
        yield "metadata: the description is not text/markdown"
    if not (metadata.description or "").startswith("# "):
        yield "metadata: the description has no heading"
    yield from (f"metadata: the link {link} is relative" for link in relative_links(metadata.description or ""))
    for requirement in metadata.requires_dist or ():
        if not requirement.specifier:
            yield f"metadata: {requirement.name} has no version"
        if requirement.url:
            yield f"metadata: {requirement.name} has a URL"


def problems_of_wheel(wheel: Path, root: Path, version: str) -> Iterator[str]:
    """Yield what is wrong with a wheel: its metadata, or its files compared with those of `src`."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        yield from problems_of_metadata(archive.read(f"{info}/METADATA"), version)
        entries = archive.read(f"{info}/entry_points.txt").decode()
    wanted = {
        path.relative_to(root / "src").as_posix()
        for path in (root / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc" and ".egg-info" not in str(path)
    }
    there = {name for name in names if not name.startswith(info)}
    yield from (f"wheel: {name} is missing" for name in sorted(wanted - there))
    yield from (f"wheel: {name} is not in src" for name in sorted(there - wanted))
    yield from (f"wheel: {name} must not be in it" for name in names if _NEVER.search(name))
    yield from (f"wheel: {name} is at the top" for name in sorted(there) if not name.startswith(_PACKAGES))
    for needed in ("lakelog/py.typed", f"{info}/licenses/LICENSE"):
        if needed not in names:
            yield f"wheel: {needed} is missing"
    for entry in ("lakelog = lakelog.cli:main", "[pytest11]"):
        if entry not in entries:
            yield f"wheel: the entry point '{entry}' is missing"


def problems_of_sdist(sdist: Path, version: str) -> Iterator[str]:
    """Yield what is wrong with an sdist."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        member = archive.extractfile(f"lakelog-{version}/PKG-INFO")
        assert member is not None
        yield from problems_of_metadata(member.read(), version)
    for needed in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "src/lakelog/__init__.py"):
        if needed not in names:
            yield f"sdist: {needed} is missing"
    yield from (f"sdist: {name} must not be in it" for name in names if re.search(r"__pycache__|\.pyc$|^\.venv", name))


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
