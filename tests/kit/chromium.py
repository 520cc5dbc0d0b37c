"""Debian's Chromium for tests, and a session of the console in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

EXECUTABLE = "/usr/bin/chromium"
_AXE = Path(__file__).parents[2] / ".parts"
_WATCH = """
window.ran = [];
document.addEventListener("securitypolicyviolation", (event) => window.ran.push("CSP: " + event.blockedURI));
window.alert = window.confirm = window.prompt = (text) => window.ran.push("script: " + text);
"""
"""Records scripts that run, and files that the Content-Security-Policy refuses."""

# New messages appear after up to 10 seconds: a page that is slow to read is read less often.
expect.set_options(timeout=30_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a running Chromium without a window."""
    with sync_playwright() as playwright:
        # Debian's sandbox needs privileges that containers do not have.
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def new_session(browser: Browser, url: str, token: str, **options: Any) -> BrowserContext:
    """Return a context that is logged in to the console at this URL. The options are those of `new_context`."""
    context = browser.new_context(**options)
    context.add_init_script(_WATCH)
    page = context.new_page()
    page.goto(f"{url}login")
    page.locator("input[name=token]").fill(token)
    page.locator("input[name=name]").fill("Ada")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(url)
    page.close()
    return context


def violations(page: Page, *rules: str) -> list[str]:
    """Return what axe-core finds on the page: the rule, and the elements that break it. Without `rules`, all rules."""
    (script,) = sorted(_AXE.glob("axe-core-*/node_modules/axe-core/axe.min.js"))[-1:]
    # The Content-Security-Policy refuses a script element, but not what the browser's driver evaluates.
    page.evaluate(script.read_text())
    only = {"runOnly": list(rules)} if rules else {}
    found = page.evaluate("(only) => axe.run(document, {resultTypes: ['violations'], ...only})", only)
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes']][:4]}" for each in found["violations"]]
