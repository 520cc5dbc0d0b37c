"""The console in a real browser, before a real server: accessibility, keys, hostile names, no JavaScript."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.kit.chromium import chromium, new_session, violations
from tests.kit.console_data import fill, lease
from tests.kit.fleet import LAKELOG, Fleet
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor
from tests.kit.statements import Statements, recorded
from tests.unit.console.browser import console_of
from tests.unit.console.examples import PATHS
from tests.unit.docs.markdown import ROOT, section, table

_CODES = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)>",
    "<iframe srcdoc='<script>alert(4)</script>'>",
    "<a href=javascript:alert(5)>x</a>",
    "<style>@import'//x'</style>",
    "<meta http-equiv=refresh content=0>",
    "<details open ontoggle=alert(6)>",
    "{{7*7}}${alert(7)}",
    "javascript:alert(8)",
    "&lt;script&gt;alert(9)&lt;/script&gt;",
    "<form action=//x><input autofocus onfocus=alert(10)>",
)
_BEFORE = ("", "'>", '">', "</textarea></title></pre>", "--><!-- -->")
PAYLOADS = [before + code for code in _CODES for before in _BEFORE]
MAX_FIRST_VIEW_BYTES = 150_000
MAX_SHIFT = 0.02


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster, servers=1, authenticate=True, env={"LAKELOG_CONSOLE": "true"}) as running:
        fill(running, "<img src=x onerror=alert(1)>")
        yield running


@pytest.fixture(scope="module")
def browser(fleet: Fleet) -> Iterator[Browser]:
    # The fleet first: a running browser has an event loop, in which `asyncio.run` cannot be called.
    with chromium() as running:
        yield running


def url_of(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet.ports[0]}/console/"


@pytest.fixture(scope="module")
def session(browser: Browser, fleet: Fleet) -> Iterator[BrowserContext]:
    assert fleet.token is not None
    context = new_session(browser, url_of(fleet), fleet.token)
    yield context
    context.close()


@pytest.fixture
def page(session: BrowserContext) -> Iterator[Page]:
    opened = session.new_page()
    yield opened
    assert opened.evaluate("window.ran") == []
    opened.close()


# This test is the first one: a running browser has an event loop, in which `asyncio.run` cannot be called.
def test_the_statements_of_each_page_are_few_and_scan_no_table(fleet: Fleet) -> None:
    rows = table(section((ROOT / "docs" / "console.md").read_text(), "Cost of a page"), "page")
    documented = {row[0]: int(row[1]) for row in rows}
    most = {name: documented.get(name, 6) for name in PATHS}
    counts, scans = asyncio.run(_statements(fleet, most))
    print("statements:", counts)
    assert {name: count for name, count in counts.items() if count > most[name]} == {}
    assert scans == {"tokens": {"token"}}, "only the small table of tokens"
    for number in range(4):
        lease(fleet, f"reader-{number}", "w-1")
    more, _ = asyncio.run(_statements(fleet, counts))
    assert {name: count for name, count in more.items() if count > counts[name]} == {}, "for more groups"
    for number in range(4):
        fleet.request("DELETE", f"/v1/groups/reader-{number}")


async def _statements(fleet: Fleet, most: Mapping[str, int]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return the number of statements of each page, and the tables that its statements scan.

    A page with more than `most` is viewed again: a slow view outlives what the engine remembers for a second.
    """
    counts: dict[str, int] = {}
    scans: dict[str, set[str]] = {}
    async with console_of(fleet) as browser:
        for name, path in PATHS.items():
            for _ in range(3):
                found = Statements()
                with recorded(found):
                    assert (await browser.get(path)).status == 200
                if len(found) <= most[name]:
                    break
            counts[name] = len(found)
            if tables := await found.scanned():
                scans[name] = tables
    return counts, scans


def test_axe_finds_nothing_on_any_page_in_both_themes(page: Page, fleet: Fleet) -> None:
    found = {}
    for name, path in {**PATHS, "login": "login", "failed": "groups/nobody"}.items():
        page.goto(url_of(fleet) + path)
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        found[f"{name}, light"] = violations(page)
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        # The themes differ in their colours only.
        found[f"{name}, dark"] = violations(page, "color-contrast")
    page.evaluate("document.body.append(document.createElement('img'))")
    assert violations(page) != [], "axe-core finds an image without a text"
    assert {place: problems for place, problems in found.items() if problems} == {}


def test_a_page_is_as_wide_as_the_screen(page: Page, fleet: Fleet) -> None:
    wide = {}
    for width in (1440, 768, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for name, path in PATHS.items():
            page.goto(url_of(fleet) + path)
            over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if over > 0:
                wide[f"{name} at {width}"] = over
    assert wide == {}


def test_no_name_runs_a_script(page: Page, fleet: Fleet) -> None:
    # The names of the installation hold a script too: see the fixture.
    for number, payload in enumerate(PAYLOADS):
        fleet.request("POST", "/v1/marks", {"text": f"{number} {payload}"[:200]})
    for path in PATHS.values():
        page.goto(url_of(fleet) + path)
        assert page.evaluate("window.ran") == [], path
    assert page.goto(f"{url_of(fleet)}marks") is not None
    texts = page.locator("tbody th").all_inner_texts()
    assert sum(any(payload in text for text in texts) for payload in PAYLOADS) == len(PAYLOADS), "as text, unchanged"
    for payload in PAYLOADS[::6]:
        for path in (
            "groups?q=",
            "groups?sort=",
            "groups?done=",
            "audit?group=x&operation=",
            "marks?text=",
            "nothing/",
        ):
            page.goto(url_of(fleet) + path + quote(payload, safe=""))
            assert page.evaluate("window.ran") == [], (path, payload)


@pytest.fixture
def visits(fleet: Fleet) -> Iterator[str]:
    """A topic without messages."""
    fleet.create_topic("visits", 2)
    yield "visits"
    fleet.request("DELETE", "/v1/topics/visits")


def _publish(fleet: Fleet, *values: str) -> None:
    messages = [{"value": value, "key": value[:100], "headers": {"h": value[:100]}, "partition": 1} for value in values]
    fleet.request("POST", "/v1/topics/visits/messages", {"messages": messages})


def test_new_messages_appear_and_run_no_script(page: Page, fleet: Fleet, visits: str) -> None:
    page.goto(f"{url_of(fleet)}topics/{visits}")
    rows, note = page.locator("#tail tbody tr"), page.locator("#tail [data-note]")
    expect(note).to_contain_text("Waiting for messages. 0 shown")
    for half in (PAYLOADS[:30], PAYLOADS[30:]):
        _publish(fleet, *half)
        expect(rows.first).to_contain_text(" ".join(half[-1].split()))
    expect(rows).to_have_count(len(PAYLOADS))
    texts = [" ".join(text.split()) for text in rows.locator("td.value").all_inner_texts()]
    assert texts == [" ".join(payload.split()) for payload in reversed(PAYLOADS)]
    assert page.evaluate("window.ran") == []
    assert violations(page) == []
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Message")


def test_new_messages_are_filtered_paused_and_bounded(
    session: BrowserContext, page: Page, fleet: Fleet, visits: str
) -> None:
    page.goto(f"{url_of(fleet)}topics/{visits}")
    rows, note = page.locator("#tail tbody tr"), page.locator("#tail [data-note]")
    expect(note).to_contain_text("0 shown")
    page.get_by_role("button", name="Pause", exact=True).click()
    other = session.new_page()
    other.goto(f"{url_of(fleet)}topics/{visits}?where=value+%3D+'wanted'")
    expect(other.locator("#tail [data-note]")).to_contain_text("0 shown")
    _publish(fleet, "wanted", "not wanted")
    expect(other.locator("#tail tbody tr")).to_have_count(1)
    expect(other.locator("#tail [data-note]")).to_contain_text("1 do not match")
    other.close()
    expect(rows).to_have_count(0)
    expect(note).to_contain_text("Paused.")
    page.get_by_role("button", name="Continue").click()
    expect(rows).to_have_count(2)
    for part in range(2):
        _publish(fleet, *(f"{part} {n}" for n in range(200)))
        expect(rows.first).to_contain_text(f"{part} 199")
    expect(rows).to_have_count(100)
    expect(note).to_contain_text("skipped because too many arrived")


def test_new_messages_below_another_path_and_after_a_lost_connection(page: Page, fleet: Fleet, visits: str) -> None:
    proxy = fleet.proxies[0]
    # A proxy that serves the console below /a/b.
    page.route(re.compile("/a/b/"), lambda route: route.continue_(url=route.request.url.replace("/a/b/", "/console/")))
    page.goto(f"http://127.0.0.1:{proxy.port}/a/b/topics/{visits}")
    rows, note = page.locator("#tail tbody tr"), page.locator("#tail [data-note]")
    expect(note).to_contain_text("0 shown")
    _publish(fleet, "before")
    expect(rows.first).to_contain_text("before")
    proxy.cut_off()
    expect(note).to_contain_text("Trying again")
    _publish(fleet, "during the cut")
    proxy.pass_through()
    expect(rows.first).to_contain_text("during the cut")
    expect(rows).to_have_count(2)


def test_keys(page: Page, fleet: Fleet) -> None:
    page.goto(url_of(fleet))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url("**/console/groups")
    page.keyboard.press("/")
    expect(page.get_by_label("Find a group")).to_be_focused()
    page.keyboard.type("ship")
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups?*q=ship*")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("main").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("g t")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("bill")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/billing")


def test_a_change_by_the_keyboard_alone(page: Page, fleet: Fleet) -> None:
    page.goto(f"{url_of(fleet)}groups/shipping")
    page.get_by_text("Resume it", exact=True).first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("The group continues.")
    fleet.request("POST", "/v1/groups/shipping/pause", {})


def test_a_refresh_keeps_focus_and_opened_parts(page: Page, fleet: Fleet) -> None:
    page.goto(f"{url_of(fleet)}groups/shipping")
    remedy = page.get_by_text("Resume it", exact=True).first
    remedy.focus()
    page.keyboard.press("Enter")
    fleet.request("POST", "/v1/groups/shipping/seek", {"topic": "orders", "position": "latest"})
    # The page does this every few seconds.
    page.evaluate("refresh()")
    expect(page.locator("dl.figures")).to_contain_text("Lag0")
    page.goto(f"{url_of(fleet)}groups")
    page.get_by_role("link", name="billing").focus()
    page.evaluate("refresh()")
    expect(page.get_by_role("link", name="billing")).to_be_focused()
    button = page.get_by_role("button", name="Pause refresh")
    button.click()
    expect(page.get_by_role("button", name="Refresh paused")).to_have_attribute("aria-pressed", "true")
    fleet.request("POST", "/v1/groups/billing/pause", {})
    page.evaluate("refresh()")
    expect(page.locator("tr", has_text="billing")).not_to_contain_text("paused")
    page.get_by_role("button", name="Refresh paused").click()
    expect(page.locator("tr", has_text="billing")).to_contain_text("paused")
    fleet.request("POST", "/v1/groups/billing/resume", {})


def test_the_theme_is_kept(page: Page, fleet: Fleet) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(url_of(fleet))
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    page.goto(f"{url_of(fleet)}groups")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_without_javascript(browser: Browser, fleet: Fleet) -> None:
    assert fleet.token is not None
    with new_session(browser, url_of(fleet), fleet.token, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(url_of(fleet))
        page.get_by_role("link", name="Groups", exact=True).click()
        page.get_by_role("link", name="billing").click()
        page.locator("select[name=topic]").select_option("orders")
        page.locator("select[name=position]").select_option("latest")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("main")).to_contain_text("Nothing has changed yet.")
        page.get_by_role("button", name="Move the group").click()
        expect(page.get_by_role("status")).to_have_text("The group was moved.")
        page.locator("summary", has_text="console of Ada").click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        page.goto(f"{url_of(fleet)}groups")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_console_of_its_own_process(browser: Browser, fleet: Fleet) -> None:
    assert fleet.token is not None
    argv = [LAKELOG, "console", "--url", f"http://127.0.0.1:{fleet.ports[0]}", "--port", str(port := free_port())]
    with Supervisor() as supervisor:
        supervisor.start(argv, ready=f"http://127.0.0.1:{port}/login", name="console")
        with new_session(browser, f"http://127.0.0.1:{port}/", fleet.token) as context:
            page = context.new_page()
            for path in ("", "servers", "groups/billing"):
                answer = page.goto(f"http://127.0.0.1:{port}/{path}")
                assert answer is not None and answer.status == 200
            page.get_by_role("button", name="Pause", exact=True).click()
            expect(page.get_by_role("status")).to_have_text("The group is paused.")
            page.get_by_role("button", name="Resume", exact=True).click()
            expect(page.get_by_role("status")).to_have_text("The group continues.")


def test_the_first_view_is_small_and_does_not_shift(browser: Browser, fleet: Fleet) -> None:
    assert fleet.token is not None
    with new_session(browser, url_of(fleet), fleet.token) as context:
        page = context.new_page()
        network = context.new_cdp_session(page)
        network.send("Network.enable")
        network.send("Network.setCacheDisabled", {"cacheDisabled": True})
        sizes: list[float] = []
        network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        page.goto(f"{url_of(fleet)}groups/billing", wait_until="networkidle")
        shift = page.evaluate(
            """() => new Promise((done) => {
                let shift = 0;
                new PerformanceObserver((list) => { for (const each of list.getEntries()) shift += each.value; })
                    .observe({ type: "layout-shift", buffered: true });
                requestAnimationFrame(() => requestAnimationFrame(() => done(shift)));
            })"""
        )
        print(f"first view: {sum(sizes):.0f} bytes in {len(sizes)} files, shift {shift:.4f}")
        assert len(sizes) >= 3
        assert sum(sizes) <= MAX_FIRST_VIEW_BYTES
        assert shift <= MAX_SHIFT
