"""Makes the pictures of docs/console.md: `python -m tests.kit.console_pictures`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.kit.chromium import chromium, new_session
from tests.kit.console_data import fill
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MAX_BYTES = 100_000
PICTURES = {
    "overview": ("", "light"),
    "topic": ("topics/clicks#live-partitions", "light"),
    "new-messages": ("topics/visits#new-messages", "light"),
    "groups": ("groups", "dark"),
    "group": ("groups/shipping", "light"),
    "timeline": ("groups/audit-trail?span=1h#timeline", "light"),
    "messages": ("topics/orders/messages?where=value.total+>+27", "light"),
    "message": ("m/1-0-1?topic=orders", "light"),
    "dead-letters": ("groups/billing/dead", "light"),
    "redrive": ("groups/billing/redrive?edit=set&field=total&value=0", "light"),
    "seek": ("groups/billing/seek?topic=orders&position=latest", "light"),
    "audit": ("audit", "dark"),
}
"""The path and the theme of each picture."""


def _visit(fleet: Fleet) -> None:
    pages = ["/", "/search?q=lamp", "/products/17", "/products/17/reviews", "/cart", "/checkout"]
    values = [{"page": page, "milliseconds": 20 + 7 * len(page)} for page in pages]
    messages = [{"value": value, "key": f"visitor-{n % 3}", "partition": 0} for n, value in enumerate(values)]
    fleet.request("POST", "/v1/topics/visits/messages", {"messages": messages})


def main() -> int:
    """Take all pictures of a new installation. Return 1 if one of them is too large."""
    FOLDER.mkdir(exist_ok=True)
    too_large = []
    with Cluster() as cluster, Fleet(cluster, servers=1, authenticate=True, env={"LAKELOG_CONSOLE": "true"}) as fleet:
        assert fleet.token is not None
        fill(fleet)
        fleet.create_topic("visits", 1)
        url = f"http://127.0.0.1:{fleet.ports[0]}/console/"
        with chromium() as browser:
            for theme in ("light", "dark"):
                size = {"width": 1000, "height": 620}
                with new_session(browser, url, fleet.token, viewport=size, color_scheme=theme) as context:
                    page = context.new_page()
                    for name, (path, wanted) in PICTURES.items():
                        if wanted == theme:
                            page.goto(url + path)
                            if name == "new-messages":
                                expect(page.locator("#tail [data-note]")).to_contain_text("0 shown")
                                _visit(fleet)
                                expect(page.locator("#tail tbody tr").first).to_contain_text("checkout")
                            file = FOLDER / f"console-{name}.png"
                            page.screenshot(path=file)
                            if file.stat().st_size > MAX_BYTES:
                                too_large.append(file.name)
    sys.stdout.write(f"{len(PICTURES)} pictures in {FOLDER}, larger than {MAX_BYTES} bytes: {too_large}\n")
    return 1 if too_large else 0


if __name__ == "__main__":
    raise SystemExit(main())
