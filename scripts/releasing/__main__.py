"""`scripts/release --dry-run [--version X.Y.Z] [--out FOLDER]`: builds and checks everything that a release needs.

Without `--dry-run`, a development version, a changed checkout or an existing tag is an error too. Nothing is uploaded
or tagged: the last lines say what remains to be done.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from scripts.releasing import artifacts, changelog, description, sbom

ROOT = Path(__file__).resolve().parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
_REQUIREMENT = re.compile(r"^[A-Za-z0-9._-]+")


@dataclass(kw_only=True)
class Release:
    """One run: where its files go, and the problems that were found."""

    out: Path
    strict: bool
    problems: list[str] = field(default_factory=list)

    def step(self, name: str, problems: list[str], detail: str = "") -> None:
        self.problems += problems
        print(f"{'ok' if not problems else 'FAILED':8} {name}{': ' + detail if detail else ''}", flush=True)
        for each in problems:
            print(f"         {each}", flush=True)


def run(*argv: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Return the output of a command that must succeed."""
    done = subprocess.run([str(each) for each in argv], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"release: {' '.join(map(str, argv[:3]))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dry-run", action="store_true", help="accept a development version and a changed checkout")
    parser.add_argument("--version", help="the version; default: that of pyproject.toml without .dev")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go; default: dist")
    options = parser.parse_args()
    present = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    version = changelog.release_version(present, options.version)
    release = Release(out=options.out.resolve(), strict=not options.dry_run)
    release.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lakelog-release-") as folder:
        tree = checkout(Path(folder), release, present, version)
        notes(release, version)
        wheel, sdist = build(release, tree, version)
        bill(release, Path(folder), wheel, version)
    sums(release, [wheel, sdist, release.out / "sbom.cdx.json"])
    if release.problems:
        print(f"release: {len(release.problems)} problems", file=sys.stderr)
        return 1
    print(f"\nVersion {version} is in {release.out}. Then:")
    print(f"  git tag -s v{version} && git push origin v{version}\n  uv publish {wheel.name} {sdist.name}")
    return 0


def checkout(folder: Path, release: Release, present: str, version: str) -> Path:
    """Return a copy of the committed files with the version of the release."""
    changed = run("git", "status", "--porcelain", "--untracked-files=no").splitlines()
    tagged = run("git", "tag", "--list", f"v{version}").split()
    wrong = [f"{len(changed)} files are changed and not committed"] if changed else []
    wrong += [f"pyproject.toml has version {present}, not {version}"] if present != version else []
    wrong += [f"tag v{version} exists"] if tagged else []
    ignored = f"; dry run in spite of: {'; '.join(wrong)}" if wrong and not release.strict else ""
    release.step("checkout", wrong if release.strict else [], f"version {version}{ignored}")
    tree = folder / "tree"
    # The files as they are here, so that a dry run checks what would be committed.
    for name in run("git", "ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    project = tree / "pyproject.toml"
    project.write_text(project.read_text().replace(f'version = "{present}"', f'version = "{version}"', 1))
    site = description.site_url((ROOT / "mkdocs.yml").read_text())
    (tree / "README.md").write_text(description.absolute((ROOT / "README.md").read_text(), ROOT, site))
    return tree


def notes(release: Release, version: str) -> None:
    text = changelog.section((ROOT / "CHANGELOG.md").read_text(), version)
    (release.out / "notes.md").write_text(f"{text}\n")
    release.step("changelog", changelog.problems_of_notes(text), f"{len(text.splitlines())} lines, notes.md")


def build(release: Release, tree: Path, version: str) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it. Files have the time of the commit, so that a build can be repeated."""
    moment = run("git", "log", "-1", "--format=%ct").strip()
    env = {**os.environ, "SOURCE_DATE_EPOCH": moment}
    run("uv", "build", "--quiet", "--out-dir", release.out, tree, env=env)
    wheel, sdist = release.out / f"lakelog-{version}-py3-none-any.whl", release.out / f"lakelog-{version}.tar.gz"
    release.step("wheel", list(artifacts.problems_of_wheel(wheel, tree, version)), wheel.name)
    release.step("sdist", list(artifacts.problems_of_sdist(sdist, version)), sdist.name)
    first = artifacts.checksum(wheel)
    run("uv", "build", "--quiet", "--wheel", "--out-dir", tree / "again", tree, env=env)
    again = artifacts.checksum(tree / "again" / wheel.name)
    release.step("repeatable", [] if first == again else ["a second build of the wheel differs"])
    return wheel, sdist


def bill(release: Release, folder: Path, wheel: Path, version: str) -> None:
    """Install the wheel in a clean environment, let it work, and write the bill of materials of the environment."""
    lock = (ROOT / "requirements.lock").read_text()
    constraints = folder / "constraints.txt"
    locked = [line.rstrip(" \\") for line in lock.splitlines() if re.match(r"[a-z0-9].*==", line)]
    constraints.write_text("\n".join(locked))
    python = folder / "venv/bin/python"
    run("uv", "venv", "--quiet", folder / "venv", "--python", sys.executable)
    install = ["uv", "pip", "install", "--quiet", "--python", str(python), "--constraint", str(constraints)]
    run(*install, f"{wheel}[server,postgres,mcp]", cwd=folder)
    run("uv", "pip", "check", "--quiet", "--python", python, cwd=folder)
    clean = {name: text for name, text in os.environ.items() if not re.match("LAKELOG_|PYTHON|VIRTUAL_ENV", name)}
    shown = run(folder / "venv/bin/lakelog", "version", cwd=folder, env=clean).strip()
    found = json.loads(run(python, "-I", SMOKE, cwd=folder, env=clean))
    wrong = [] if shown == version else [f"`lakelog version` shows {shown}"]
    release.step("smoke test", wrong, f"{len(found)} packages")
    installed = [
        sbom.Installed(
            name=each["name"],
            version=each["version"],
            license=each["license"],
            requires=tuple(match[0] for line in each["requires"] if (match := _REQUIREMENT.match(line))),
        )
        for each in found
    ]
    own = next(each for each in installed if each.name == "lakelog")
    others = [each for each in installed if each is not own]
    made = sbom.bill(own, artifacts.checksum(wheel), others, sbom.locked_hashes(lock))
    (release.out / "sbom.cdx.json").write_text(json.dumps(made, indent=1) + "\n")
    release.step("SBOM", sbom.problems_of_bill(made), f"{len(made['components'])} components, sbom.cdx.json")


def sums(release: Release, files: list[Path]) -> None:
    lines = [f"{artifacts.checksum(path)}  {path.name}" for path in files]
    (release.out / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    release.step("checksums", [], "SHA256SUMS")


if __name__ == "__main__":
    sys.exit(main())
