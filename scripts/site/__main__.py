"""Builds or serves the documentation site: `scripts/docs build|serve`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from scripts.site import links, llms
from scripts.site.staging import PROJECT_PAGES, ROOT, navigation, stage

FOLDER = ROOT / ".site"
_POLL_SECONDS = 1.0
_OPTION = re.compile(r"<code>(--[a-z][a-z-]*)</code>")


def build(folder: Path = FOLDER) -> list[str]:
    """Build the site into `public` below the folder, and return what is wrong with it."""
    folder.mkdir(parents=True, exist_ok=True)
    stage(folder)
    done = subprocess.run([*_zensical("build"), "--strict", "--clean"], cwd=folder, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    if done.returncode or "Warning" in printed:
        return [printed]
    pages = list(navigation((folder / "mkdocs.yml").read_text()))
    unlisted = sorted({path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")})
    listed = {page.path for page in pages}
    wrong = [
        f"docs/{path} is not in the navigation: add it to `nav` in mkdocs.yml"
        for path in unlisted
        if path not in listed
    ]
    _keep_options_whole(folder / "public")
    llms.write(folder / "docs", folder / "public", pages)
    return wrong + [f"broken link in {each}" for each in links.broken(folder / "public")]


def serve(address: str) -> int:
    """Serve the site until Ctrl-C. A page that is saved is staged and rendered again."""
    FOLDER.mkdir(exist_ok=True)
    stage(FOLDER)
    server = subprocess.Popen([*_zensical("serve"), "--dev-addr", address], cwd=FOLDER)
    seen = _changed()
    try:
        while server.poll() is None:
            time.sleep(_POLL_SECONDS)
            if (now := _changed()) != seen:
                seen = now
                stage(FOLDER)
    except KeyboardInterrupt:
        server.terminate()
    return server.wait()


def _keep_options_whole(public: Path) -> None:
    """Let no line end within an option: browsers break after each hyphen, and `--` would stay alone."""
    for page in public.rglob("*.html"):
        text = page.read_text()
        whole = _OPTION.sub(r'<code style="white-space: nowrap">\1</code>', text)
        if whole != text:
            page.write_text(whole)


def _zensical(command: str) -> list[str]:
    return [str(Path(sys.executable).parent / "zensical"), command]


def _changed() -> float:
    """Return when a page of the site was last changed."""
    paths = [*(ROOT / "docs").rglob("*"), *(ROOT / path for path in PROJECT_PAGES), ROOT / "mkdocs.yml"]
    return max(path.stat().st_mtime for path in paths)


def main(arguments: list[str]) -> int:
    """Run a command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="scripts/docs")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the site into .site/public; a warning or a broken link fails")
    serving = commands.add_parser("serve", help="serve the site, and render pages again when they change")
    serving.add_argument("--address", default="127.0.0.1:8000", help="where to listen; default: %(default)s")
    options = parser.parse_args(arguments)
    if options.command == "serve":
        return serve(options.address)
    began = time.monotonic()
    wrong = build()
    for problem in wrong:
        print(f"docs: {problem}", file=sys.stderr)
    if not wrong:
        print(f"docs: the site is in .site/public ({time.monotonic() - began:.0f} s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
