"""The documentation site builds without a warning, its links lead somewhere, and links to source files are copied."""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response

from scripts.site import links, llms
from scripts.site.__main__ import build
from scripts.site.staging import ROOT, navigation, rewrite
from tests.kit.chromium import chromium
from tests.unit.docs.markdown import DOCS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    began = time.monotonic()
    assert build(folder) == []
    assert time.monotonic() - began <= 90
    return folder / "public"


def test_every_page_is_rendered_and_searched(site: Path) -> None:
    pages = [page.path for page in navigation((ROOT / "mkdocs.yml").read_text())]
    assert len(pages) == len(set(pages)) > 50
    assert "search" in (site / "index.html").read_text()
    searched = json.dumps(json.loads((site / "search.json").read_text()))
    for page in pages:
        rendered = page.removesuffix(".md") + "/" if page != "index.md" else ""
        assert (site / rendered / "index.html").exists(), page
        assert rendered in searched, page


LOOKED_AT = ("", "tutorial/first-hour/", "reference/cli/", "reference/python/")
"""Pages that are opened in a browser: each kind of page once."""
_WIDE = "document.documentElement.scrollWidth > window.innerWidth"
_BROKEN_OPTIONS = """[...document.querySelectorAll("code")]
    .filter((code) => /^--[a-z-]+$/.test(code.textContent) && code.getClientRects().length > 1)
    .map((code) => code.textContent)"""


@pytest.mark.nightly
def test_pages_fit_a_monitor_and_a_phone_in_both_themes(site: Path) -> None:
    """Nothing is wider than the window, no option is broken between two lines, and no file is missing."""
    handler = functools.partial(QuietFiles, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for width, theme in ((1440, "light"), (390, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            missing = missing_files(page)
            for path in LOOKED_AT:
                page.goto(f"http://127.0.0.1:{server.server_port}/{path}")
                where = (path, width)
                assert not page.evaluate(_WIDE), where
                assert page.evaluate(_BROKEN_OPTIONS) == [], where
                shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (int(re.findall(r"[0-9]+", shade)[0]) < 128) == (theme == "dark"), (where, shade)
            assert missing == []
            page.close()
        server.shutdown()


def missing_files(page: Page) -> list[str]:
    """Return a list, which gets the address of each file that the server does not have."""
    found: list[str] = []

    def look(response: Response) -> None:
        if response.status >= 400:
            found.append(response.url)

    page.on("response", look)
    return found


class QuietFiles(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


def test_no_page_loads_from_another_host(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert 'src="http' not in page and 'stylesheet" href="http' not in page


def test_text_forms_hold_every_page(site: Path) -> None:
    listed, full = (site / "llms.txt").read_text(), (site / "llms-full.txt").read_text()
    assert listed.startswith("# Lakelog\n\n> Durable topics")
    for page in DOCS.rglob("*.md"):
        path = page.relative_to(DOCS).as_posix()
        assert (site / path).exists()
        assert path == "index.md" or f"]({path})" in listed
        assert f"<!-- {path} -->" in full
    assert "the payment service is busy" in full


def test_a_link_to_source_leads_to_a_copy(site: Path) -> None:
    page = (site / "explanation/how-the-log-works/index.html").read_text()
    assert "source/src/lakelog/storage/store.py.txt" in page
    copied = site / "source/src/lakelog/storage/store.py.txt"
    assert copied.read_text() == (ROOT / "src/lakelog/storage/store.py").read_text()


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](write-a-worker.md#run-it)", "[a](write-a-worker.md#run-it)"),
        ("[a](#below)", "[a](#below)"),
        ("[a](https://x.example/b.md)", "[a](https://x.example/b.md)"),
        ("[a](../../README.md)", "[a](../index.md)"),
        ("[a](../../ARCHITECTURE.md#packages)", "[a](../project/architecture.md#packages)"),
        ("[`E`](../../src/lakelog/errors.py)", "[`E`](../source/src/lakelog/errors.py.txt)"),
        ("![a](../../benchmarks/figures/figures.svg)", "![a](../source/benchmarks/figures/figures.svg)"),
        ("see [the folder](../../deploy/grafana).", "see the folder."),
        ("```\n[a](../../README.md)\n```", "```\n[a](../../README.md)\n```"),
    ],
)
def test_links_out_of_docs_are_rewritten(link: str, expected: str) -> None:
    def copy(path: str) -> str:
        return f"source/{path}" + ("" if path.endswith(".svg") else ".txt")

    assert rewrite(link, "docs/howto/x.md", "howto/x.md", ROOT, copy) == expected


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<h2 id="here">')
    targets = ["a/", "a/#here", "a/index.html", "#there", "https://x.example", "b/", "a/#there", "missing.svg"]
    body = "".join(f'<a class="x" href="{target}">' for target in targets) + '<i id="there"><img src="missing.svg">'
    (tmp_path / "index.html").write_text(body)
    assert [*links.broken(tmp_path)] == ["index.html: a/#there", "index.html: b/", "index.html: missing.svg"]


def test_summaries_are_first_sentences() -> None:
    page = "# A\n\n![x](y.svg)\n\nA [topic](t.md) is\na table. It has rows.\n"
    assert (llms.title(page), llms.summary(page)) == ("A", "A topic is a table.")
